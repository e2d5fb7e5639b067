"""Checks the indexes of one segment during a scan of its batches.

Each check sees every batch in order, and returns a fault at the end, if any. An index that was
never trimmed ends in zeros, which are not entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.errors import CorruptIndex
from engine.fs import names
from engine.fs.port import FileSystem
from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.index.transaction import ENTRY as TXN_ENTRY
from engine.index.transaction import TransactionIndex
from engine.records.header import BatchHeader
from engine.tools.findings import Finding, Findings, Severity
from engine.types import (
    NO_TIMESTAMP,
    AbortedTransaction,
    OffsetPosition,
    TimestampOffset,
)

_ANY_SIZE = 0
"""The size for opening an index read-only, where it is not used."""


class OffsetIndexCheck:
    """Each entry must point to a batch's start, and name the last offset of the append there."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int) -> None:
        self.fault: str | None = None
        index = OffsetIndex(fs, path, base_offset, _ANY_SIZE, read_only=True)
        try:
            if fs.size_bytes(path) % OffsetIndex.ENTRY.size:
                self.fault = "its length is not a multiple of an entry"
            self._entries = list(_without_zeros(index.entries(), base_offset))
        finally:
            index.close_handles()
        self._slot = 0
        self._awaited: OffsetPosition | None = None

    def see(self, position: int, header: BatchHeader) -> None:
        """Look at the next batch."""
        awaited = self._awaited
        if awaited is not None and header.last_offset >= awaited.offset:
            if header.last_offset > awaited.offset:
                self._note(
                    f"offset {awaited.offset} at byte {awaited.position} does not end a batch"
                )
            self._awaited = None
        while self._slot < len(self._entries) and self._entries[self._slot].position <= position:
            entry = self._entries[self._slot]
            self._slot += 1
            if entry.position < position:
                self._note(
                    f"byte {entry.position}, for offset {entry.offset}, does not start a batch"
                )
            elif entry.offset < header.last_offset:
                self._note(
                    f"offset {entry.offset} is not at byte {position}, "
                    f"where the batch up to {header.last_offset} is"
                )
            elif entry.offset > header.last_offset:
                self._awaited = entry

    def finish(self) -> str | None:
        """Return what is wrong, if anything is."""
        if self._slot < len(self._entries):
            self._note(f"byte {self._entries[self._slot].position} is after the last batch")
        elif self._awaited is not None:
            self._note(f"offset {self._awaited.offset} is after the last batch")
        return self.fault

    def _note(self, fault: str) -> None:
        self.fault = self.fault or fault


class TimeIndexCheck:
    """No record up to an entry's offset may be later, and the batch there must have that time."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int, *, is_complete: bool) -> None:
        self.fault: str | None = None
        self._is_complete = is_complete
        index = TimeIndex(fs, path, base_offset, _ANY_SIZE, read_only=True)
        try:
            if fs.size_bytes(path) % TimeIndex.ENTRY.size:
                self.fault = "its length is not a multiple of an entry"
            self._entries = list(_without_zero_times(index.entries()))
        finally:
            index.close_handles()
        self._slot = 0
        self._maximum = NO_TIMESTAMP

    def see(self, position: int, header: BatchHeader) -> None:  # noqa: ARG002 - as the others
        """Look at the next batch."""
        self._maximum = max(self._maximum, header.max_timestamp)
        while self._slot < len(self._entries) and self._is_reached(header):
            entry = self._entries[self._slot]
            self._slot += 1
            if entry.offset < header.base_offset or entry.timestamp != header.max_timestamp:
                self._note(f"offset {entry.offset} does not have the time {entry.timestamp}")
            elif entry.timestamp < self._maximum:
                self._note(f"a record before offset {entry.offset} is later than {entry.timestamp}")

    def finish(self) -> str | None:
        """Return what is wrong, if anything is."""
        if self._slot < len(self._entries):
            self._note(f"offset {self._entries[self._slot].offset} is after the last batch")
        last = self._entries[-1].timestamp if self._entries else NO_TIMESTAMP
        if self._is_complete and last < self._maximum:
            self._note(f"it lacks the time {self._maximum}")
        return self.fault

    def _is_reached(self, header: BatchHeader) -> bool:
        return self._entries[self._slot].offset <= header.last_offset

    def _note(self, fault: str) -> None:
        self.fault = self.fault or fault


class TransactionIndexCheck:
    """The entries must be the aborted transactions whose markers are in the segment.

    If retention or compaction has removed batches, the starts of transactions may be unknown: then
    only the markers are compared.
    """

    def __init__(self, fs: FileSystem, path: Path, base_offset: int) -> None:
        self.fault: str | None = None
        self._found: list[AbortedTransaction] = []
        self._expected: list[AbortedTransaction] = []
        self._abort_markers: set[tuple[int, int]] = set()
        if not fs.exists(path) or fs.is_misplaced(path):
            return
        index = TransactionIndex(fs, path, base_offset, read_only=True)
        try:
            self._found = list(index.entries())
            if fs.size_bytes(path) % TXN_ENTRY.size:
                self.fault = "its length is not a multiple of an entry"
        except CorruptIndex as error:
            self.fault = str(error)
        finally:
            index.close()

    def see_abort(
        self, producer_id: int, marker_offset: int, aborted: AbortedTransaction | None
    ) -> None:
        """Record an abort marker and its transaction, if known."""
        self._abort_markers.add((producer_id, marker_offset))
        if aborted is not None:
            self._expected.append(aborted)

    def finish(self, *, is_whole: bool) -> str | None:
        """Return what is wrong, if anything is; `is_whole` means that no batch is missing."""
        if self.fault is None and is_whole and self._found != self._expected:
            self.fault = "its entries are not the aborted transactions of the segment"
        if self.fault is None:
            ends = {(entry.producer_id, entry.last_offset) for entry in self._found}
            if not ends <= self._abort_markers:
                self.fault = "it names a marker that is not in the segment"
            elif not {(e.producer_id, e.last_offset) for e in self._expected} <= ends:
                self.fault = "it does not name every aborted transaction of the segment"
        return self.fault


class SegmentIndexChecks:
    """The checks of the three indexes of one segment."""

    def __init__(self, fs: FileSystem, directory: Path, base_offset: int) -> None:
        self._fs = fs
        self._directory = directory
        self._base_offset = base_offset
        self._is_judged = True
        self._sparse: dict[Path, OffsetIndexCheck | TimeIndexCheck] = {}
        self._transaction_path = directory / names.txn_index_name(base_offset)
        self.transactions = TransactionIndexCheck(fs, self._transaction_path, base_offset)

    def open(self, *, is_sealed: bool) -> Findings:
        offset_path = self._directory / names.index_name(self._base_offset)
        time_path = self._directory / names.time_index_name(self._base_offset)
        for path in (offset_path, time_path):
            if self._fs.is_misplaced(path):
                continue  # reported already
            if not self._fs.exists(path):
                yield self._stale(path, "it is missing")
                continue
            try:
                self._sparse[path] = (
                    OffsetIndexCheck(self._fs, path, self._base_offset)
                    if path is offset_path
                    else TimeIndexCheck(self._fs, path, self._base_offset, is_complete=is_sealed)
                )
            except CorruptIndex as error:  # the disk cannot read it
                yield self._stale(path, str(error))

    def give_up(self) -> None:
        """Report no faults: the content of damaged batches is unknown."""
        self._sparse.clear()
        self._is_judged = False

    def see(self, position: int, header: BatchHeader) -> None:
        for check in self._sparse.values():
            check.see(position, header)

    def finish(self, *, is_whole: bool) -> Findings:
        if not self._is_judged:
            return
        faults: Mapping[Path, str | None] = {
            **{path: check.finish() for path, check in self._sparse.items()},
            self._transaction_path: self.transactions.finish(is_whole=is_whole),
        }
        for path, fault in faults.items():
            if fault is not None and not self._fs.is_misplaced(path):  # reported already
                yield self._stale(path, fault)

    def _stale(self, path: Path, fault: str) -> Finding:
        stale = stale_indexes(self._directory, self._base_offset)
        return Finding(Severity.DERIVED, path, fault, stale_files=stale)


def _without_zeros(entries: Iterator[OffsetPosition], base_offset: int) -> Iterator[OffsetPosition]:
    for slot, entry in enumerate(entries):
        if entry.offset == base_offset and (slot or entry.position == 0):
            return
        yield entry


def _without_zero_times(entries: Iterator[TimestampOffset]) -> Iterator[TimestampOffset]:
    for slot, entry in enumerate(entries):
        if entry.timestamp == 0 and slot:
            return
        yield entry


def stale_indexes(directory: Path, base_offset: int) -> tuple[Path, ...]:
    """Return all index files of a segment, because opening only rebuilds them together."""
    return (
        directory / names.index_name(base_offset),
        directory / names.time_index_name(base_offset),
        directory / names.txn_index_name(base_offset),
    )
