"""The producer snapshots of one partition held against a walk over all its batches."""

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
    """Each snapshot is decoded, and compared with `producers` when these have got that far.

    A snapshot may lack producers that had expired. It may know more than the log only where batches
    are gone; then just what both know is compared, and no open transaction.
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
        """Compare the snapshots at or below `offset`; everything below it was observed."""
        while self._pending and self._pending[0] <= offset:
            snapshot = self._pending.pop(0)
            fault = self._fault(snapshot, is_whole=is_whole)
            if fault is not None:
                self._faults.append((snapshot, fault))

    def finish(self, bases: Sequence[int], end_offset: int, *, is_whole: bool) -> Findings:
        """Compare what is left, and yield everything that is wrong."""
        self.see_before(end_offset, is_whole=is_whole)
        for snapshot in self._pending:
            detail = "it is beyond the log: opening removes it"
            path = self._path(snapshot)
            yield Finding(Severity.NOTE, path, detail, is_left_to_opening=True)
        for snapshot, fault in self._faults:
            below = bases[max(0, bisect_left(bases, snapshot) - 1)] if bases else None
            # The scan of the segment below writes it anew, and opening scans what lacks indexes.
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
                return f"producer {entry.producer_id} has written beyond it"
            known = self._producers.entry(entry.producer_id)
            if is_whole and known is None:
                return f"producer {entry.producer_id} never wrote to this log"
            if known is not None and not _agree(entry, known, is_whole=is_whole):
                return f"producer {entry.producer_id} is not where the log has it"
        return None


def _agree(stored: ProducerEntry, known: ProducerEntry, *, is_whole: bool) -> bool:
    """Whether both may describe one producer at one offset."""
    if stored.batches and known.batches:
        newest, newest_known = stored.batches[-1], known.batches[-1]
        if newest[:2] != newest_known[:2]:  # sequence and offset
            # Compaction takes the one of the snapshot if the producer has a newer one behind it.
            return not is_whole and newest_known.last_offset < newest.last_offset
    return not is_whole or (
        stored.producer_epoch == known.producer_epoch
        and stored.coordinator_epoch == known.coordinator_epoch
        and stored.transaction_first_offset == known.transaction_first_offset
        and bool(stored.batches) == bool(known.batches)
    )
