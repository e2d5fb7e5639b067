"""Checks the producer snapshots of one partition during a scan of its batches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from engine.errors import CorruptSnapshot
from engine.fs import names
from engine.fs.port import FileSystem
from engine.state.producer_entry import ProducerEntry
from engine.state.producer_snapshot import decode_snapshot
from engine.state.producers import ProducerStates
from engine.tools.findings import Finding, Findings, Severity
from engine.tools.verify_indexes import stale_indexes


class SnapshotChecks:
    """Each snapshot is compared with `producers` when the scan has reached its offset.

    A snapshot may lack expired producers. If batches are missing, it may have more than the log:
    then only producers in both are compared, without open transactions.
    """

    def __init__(self, fs: FileSystem, directory: Path, producers: ProducerStates) -> None:
        self._fs = fs
        self._directory = directory
        self._producers = producers
        self._pending = [
            offset for offset in producers.snapshots if not fs.is_misplaced(self._path(offset))
        ]
        self._faults: list[tuple[int, str]] = []

    def see_before(self, offset: int, *, is_whole: bool) -> None:
        """Compare the snapshots at or below `offset`; the scan has passed everything below it."""
        while self._pending and self._pending[0] <= offset:
            snapshot = self._pending.pop(0)
            fault = self._fault(snapshot, is_whole=is_whole)
            if fault is not None:
                self._faults.append((snapshot, fault))

    def finish(self, bases: Sequence[int], end_offset: int, *, is_whole: bool) -> Findings:
        """Compare the remaining snapshots, and yield all findings."""
        self.see_before(end_offset, is_whole=is_whole)
        for snapshot in self._pending:
            detail = "it is above the log end: opening removes it"
            path = self._path(snapshot)
            yield Finding(Severity.NOTE, path, detail, is_left_to_opening=True)
        for snapshot, fault in self._faults:
            below = bases[max(0, bisect_left(bases, snapshot) - 1)] if bases else None
            # Opening scans segments without indexes, and the scan of the one below rewrites the
            # snapshot.
            indexes = () if below is None else stale_indexes(self._directory, below)
            path = self._path(snapshot)
            yield Finding(Severity.DERIVED, path, fault, stale_files=(path, *indexes))

    def _path(self, offset: int) -> Path:
        return self._directory / names.snapshot_name(offset)

    def _fault(self, offset: int, *, is_whole: bool) -> str | None:
        try:
            stored = decode_snapshot(self._fs.read_bytes(self._path(offset)), loaded_ms=0)
        except CorruptSnapshot as error:
            return str(error)
        for entry in stored:
            if any(batch.last_offset >= offset for batch in entry.batches):
                return f"producer {entry.producer_id} has an offset above it"
            known = self._producers.entry(entry.producer_id)
            if is_whole and known is None:
                return f"producer {entry.producer_id} never wrote to this log"
            if known is not None and not _agree(entry, known, is_whole=is_whole):
                return f"producer {entry.producer_id} disagrees with the log"
        return None


def _agree(stored: ProducerEntry, known: ProducerEntry, *, is_whole: bool) -> bool:
    """Whether both may describe the same producer at the same offset."""
    if stored.batches and known.batches:
        newest, newest_known = stored.batches[-1], known.batches[-1]
        if newest[:2] != newest_known[:2]:  # sequence and offset
            # Compaction may remove the snapshot's last batch if the producer has a newer one.
            return not is_whole and newest_known.last_offset < newest.last_offset
    return not is_whole or (
        stored.producer_epoch == known.producer_epoch
        and stored.coordinator_epoch == known.coordinator_epoch
        and stored.transaction_first_offset == known.transaction_first_offset
        and bool(stored.batches) == bool(known.batches)
    )
