"""Checks one partition directory without writing.

The `.log` files are scanned once, batch by batch; indexes, snapshots and epochs are compared with
that scan: each check sees every batch in order, and returns a fault at the end, if any. An index
that was never trimmed ends in zeros, which are not entries. Files that opening would rebuild anyway
after an unclean stop are not checked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from engine.checkpoint.kafka_files import read_epochs, read_topic_id
from engine.checkpoint.tidelog_files import SegmentGap, read_gaps
from engine.clock import SystemClock
from engine.errors import (
    CorruptBatch,
    CorruptCheckpoint,
    CorruptIndex,
    CorruptSnapshot,
    InvalidRecord,
    InvalidRequest,
    StoredDataCorrupt,
)
from engine.fs import names
from engine.fs.port import FileSystem
from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.index.transaction import ENTRY as TXN_ENTRY
from engine.index.transaction import TransactionIndex
from engine.records.batch import BatchView
from engine.records.control import EndMarker, parse_end_marker
from engine.records.header import UP_TO_MAGIC_BYTES, BatchHeader, frame_size
from engine.segment.file_records import FileRecords
from engine.state.producer_entry import ProducerEntry
from engine.state.producer_snapshots import decode_snapshot
from engine.state.producer_table import decode_windows
from engine.state.producers import ProducerStates
from engine.tools.findings import Checked, Finding, Findings, Severity
from engine.types import (
    INT64_MAX,
    NO_TIMESTAMP,
    AbortedTransaction,
    EpochOffset,
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


_NEVER_MS = INT64_MAX
"""Effectively never: producers do not expire during a check."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the data directory's files say about a partition."""

    was_clean: bool
    recovery_point: int = 0
    may_have_gaps: bool = True
    """Whether compaction, or an unknown broker, may have removed offsets."""
    log_start_offset: int = 0
    """Everything below is deleted, even if its bytes exist, and is not used for rebuilding."""
    topic_id: str | None = None
    """The recorded topic id. If the partition has another id, a broker has served it."""

    def is_scanned(self, end_offset: int | None) -> bool:
        """Whether opening scans a segment that ends at `end_offset`; None for the active one."""
        if self.was_clean:
            return False
        return end_offset is None or end_offset > self.recovery_point

    @property
    def trimmed_below(self) -> int | None:
        """Where a segment ends whose preallocated tail is cut by opening, though it is not scanned.

        A power cut may bring back the tail that a roll cut after the last flush.
        """
        return None if self.was_clean else self.recovery_point


class PartitionCheck:
    """One check of one directory; iterate over `findings` once, to its end."""

    def __init__(self, fs: FileSystem, directory: Path, scope: Scope, checked: Checked) -> None:
        self._fs = fs
        self._directory = directory
        self._scope = scope
        self._checked = checked
        self._names = fs.list_directory(directory)
        self._files = {name for name in self._names if not fs.is_misplaced(directory / name)}
        self._epochs: list[EpochOffset] = []
        self._are_epochs_wrong = False
        self._gaps: Collection[SegmentGap] = ()
        self._producers = ProducerStates(
            fs, directory, clock=SystemClock(), expiration_ms=_NEVER_MS
        )
        self._snapshots = SnapshotChecks(fs, directory, self._producers)
        self._is_whole = True
        """Whether no batch is missing, deleted or damaged so far, so that the scan is complete."""
        self._end_offset = 0
        self._is_end_known = True

    def findings(self) -> Findings:
        """Yield the findings in the order of the check."""
        self._checked.partitions += 1
        yield from self._judge_names()
        yield from self._read_small_files()
        removed_end = self._removed_end()
        bases = [
            base
            for name in sorted(self._files)
            if (base := _base_of_log(name)) is not None and base >= removed_end
        ]
        self._end_offset = bases[0] if bases else 0
        self._is_whole = self._end_offset == 0 and self._scope.log_start_offset == 0
        for base, following in pairwise((*bases, None)):
            assert base is not None
            yield from self._check_segment(base, following)
        yield from self._snapshots.finish(bases, self._end_offset, is_whole=self._is_whole)
        if self._is_end_known:
            self._checked.ends[self._directory.name] = self._end_offset

    # -- files ---------------------------------------------------------------------------------

    def _removed_end(self) -> int:
        """Return the end offset of an interrupted removal, which opening will finish."""
        ends = (end for name in self._names if (end := names.removal_end(name)) is not None)
        end_offset = max(ends, default=0)
        return end_offset if names.log_name(end_offset) in self._names else 0

    def _judge_names(self) -> Findings:
        logs = {base for name in self._names if (base := _base_of_log(name)) is not None}
        removed_end = self._removed_end()
        for name in self._names:
            path = self._directory / name
            base = names.base_offset_of(name)
            is_of_segment = name.endswith((names.LOG_SUFFIX, *names.INDEX_SUFFIXES))
            if not names.is_of_a_log(name):
                yield Finding(Severity.NOTE, path, "it is not of this format and is left alone")
            elif name not in self._files:
                detail = "it is not a regular file: move it away"
                yield Finding(Severity.REFUSED, path, detail)
            elif name.endswith(names.LEFTOVER_SUFFIXES):
                yield _tidied(path, "left by an interrupted operation, which opening completes")
            elif is_of_segment and base is not None and base < removed_end:
                yield _tidied(path, "left by an interrupted removal, which opening completes")
            elif name.endswith(names.INDEX_SUFFIXES) and base not in logs:
                yield _tidied(path, "it has no .log file: opening removes it")

    def _read_small_files(self) -> Findings:
        path = self._directory / names.PARTITION_METADATA
        try:
            topic_id = None if self._is_odd(path) else read_topic_id(self._fs, path)
            if topic_id is None and not self._is_odd(path):
                yield _tidied(path, "it is missing: opening creates it")
            if topic_id not in {None, self._scope.topic_id}:
                self._scope = replace(self._scope, may_have_gaps=True)
        except CorruptCheckpoint as error:
            detail = f"{error}; opening rebuilds it"
            yield Finding(Severity.DERIVED, path, detail, is_left_to_opening=True)
        path = self._directory / names.LEADER_EPOCH_CHECKPOINT
        try:
            if not self._is_odd(path):
                self._epochs = read_epochs(self._fs, path)
        except CorruptCheckpoint as error:
            self._are_epochs_wrong = True
            yield Finding(Severity.DERIVED, path, str(error), stale_files=(path,))
        path = self._directory / names.PRODUCER_WINDOWS
        try:
            if path.name in self._files:
                decode_windows(self._fs.read_bytes(path))
        except CorruptSnapshot as error:
            yield Finding(Severity.DERIVED, path, str(error), stale_files=(path,))
        path = self._directory / names.SEGMENT_GAPS
        try:
            if not self._is_odd(path):
                self._gaps = set(read_gaps(self._fs, path))
        except CorruptCheckpoint as error:
            self._scope = replace(self._scope, may_have_gaps=True)
            detail = f"{error}; missing offsets are no longer detected"
            yield Finding(Severity.DAMAGE, path, detail)

    def _is_odd(self, path: Path) -> bool:
        """Whether the path is not a regular file, which is reported already."""
        return path.name in self._names and path.name not in self._files

    # -- segments ------------------------------------------------------------------------------

    def _check_segment(self, base_offset: int, following: int | None) -> Findings:
        if self._end_offset < base_offset and self._is_end_known:
            yield from self._judge_gap(base_offset, self._log_path(base_offset))
        self._end_offset = max(self._end_offset, base_offset)
        self._is_end_known = True
        is_scanned = self._scope.is_scanned(following)
        indexes = None if is_scanned else SegmentIndexChecks(self._fs, self._directory, base_offset)
        if indexes is not None:
            yield from indexes.open(is_sealed=following is not None or self._scope.was_clean)
        self._checked.segments += 1
        with self._fs.open(self._log_path(base_offset), read_only=True) as file:
            records = FileRecords(file)
            self._checked.size_bytes += file.size_bytes
            try:
                for position, header in records.headers(0, file.size_bytes, sought=base_offset):
                    yield from self._see(records, position, header, indexes)
                    if self._is_end_known and self._end_offset > (following or INT64_MAX):
                        what = "it reaches into the next segment"
                        yield self._damage(records, position, header.base_offset, what)
            except StoredDataCorrupt as error:
                yield self._judge_end(records, error.position, str(error), is_scanned=is_scanned)
                return
        if indexes is not None:
            yield from indexes.finish(is_whole=self._is_whole)

    def _see(
        self,
        records: FileRecords,
        position: int,
        header: BatchHeader,
        indexes: SegmentIndexChecks | None,
    ) -> Findings:
        self._checked.batches += 1
        batch = BatchView(records.read(position, header.size_bytes))
        try:
            batch.ensure_intact()
            marker = parse_end_marker(batch) if header.is_control else None
            _ensure_readable(batch)
            if header.base_offset < self._end_offset or header.last_offset < header.base_offset:
                what = f"offsets {header.base_offset} to {header.last_offset} descend"
                raise InvalidRecord(what)
        except InvalidRequest as error:
            yield self._damage(records, position, self._end_offset, str(error))
            if indexes is not None:
                indexes.give_up()
            return
        if header.base_offset > self._end_offset and self._is_end_known:
            first_offset = records.first_offset(position, header)
            if first_offset > self._end_offset:
                yield from self._judge_gap(first_offset, records.path)
        self._snapshots.see_before(header.base_offset, is_whole=self._is_whole)
        if indexes is not None:
            indexes.see(position, header)
        self._observe(header, marker, indexes)
        yield from self._judge_epoch(header)
        self._end_offset = header.next_offset
        self._is_end_known = True

    def _observe(
        self, header: BatchHeader, marker: EndMarker | None, indexes: SegmentIndexChecks | None
    ) -> None:
        aborted = self._producers.observe(header, marker)
        if marker is not None and marker.is_abort and indexes is not None:
            if aborted is not None and aborted.first_offset < self._scope.log_start_offset:
                aborted = None  # depends on when the index was built
            indexes.transactions.see_abort(header.producer_id, header.last_offset, aborted)

    def _judge_epoch(self, header: BatchHeader) -> Findings:
        if header.leader_epoch < 0 or self._are_epochs_wrong:
            return
        in_force = None
        for entry in self._epochs:
            if entry.start_offset <= header.base_offset:
                in_force = entry.epoch
        if in_force is not None and in_force != header.leader_epoch:
            self._are_epochs_wrong = True
            path = self._directory / names.LEADER_EPOCH_CHECKPOINT
            yield Finding(
                Severity.DERIVED,
                path,
                f"it has epoch {in_force} where the log has {header.leader_epoch}",
                offset=header.base_offset,
                stale_files=(path,),
            )

    def _judge_gap(self, next_offset: int, path: Path) -> Findings:
        missing, self._end_offset = self._end_offset, next_offset
        self._is_whole = False
        is_truncation = any(next_offset == entry.start_offset for entry in self._epochs)
        is_noted = SegmentGap(missing, next_offset) in self._gaps
        # The epoch that explained the gap may be gone, with everything below the log start.
        is_below = next_offset <= self._scope.log_start_offset
        if not (self._scope.may_have_gaps or is_truncation or is_noted or is_below):
            what = f"offsets {missing} to {next_offset - 1} are missing"
            yield Finding(Severity.DAMAGE, path, what, offset=missing)

    def _judge_end(
        self, records: FileRecords, position: int, what: str, *, is_scanned: bool
    ) -> Finding:
        """Yield a finding for the bytes after the last batch that can be framed."""
        self._is_whole = False
        count = records.size_bytes - position
        is_untrimmed = self._end_offset == self._scope.trimmed_below and records.is_zeros_from(
            position
        )
        is_torn = is_untrimmed or (is_scanned and _is_torn(records, position))
        self._is_end_known = is_torn
        if is_torn:
            what = f"{count} bytes of an unfinished append: opening cuts them"
            severity = Severity.NOTE
        else:
            severity = Severity.DAMAGE
            if is_scanned:
                what = f"{what}; opening cuts the log here: {count} bytes and all later segments"
        return Finding(
            severity,
            records.path,
            what,
            position,
            self._end_offset,
            is_left_to_opening=is_scanned,
        )

    def _damage(self, records: FileRecords, position: int, offset: int, what: str) -> Finding:
        self._is_whole = self._is_end_known = False
        return Finding(Severity.DAMAGE, records.path, what, position, offset)

    def _log_path(self, base_offset: int) -> Path:
        return self._directory / names.log_name(base_offset)


def _ensure_readable(batch: BatchView) -> None:
    """Raise InvalidRecord unless each record can be read, as a reader of the service judges it."""
    try:
        for _ in batch.records():
            pass
    except InvalidRequest as error:
        raise InvalidRecord(
            f"{error}; its checksum is right, so it was written like this, and a cut leaves it"
        ) from error


def _base_of_log(name: str) -> int | None:
    base_offset = names.base_offset_of(name)
    if base_offset is None or name != names.log_name(base_offset):
        return None
    return base_offset


def _tidied(path: Path, detail: str) -> Finding:
    return Finding(Severity.NOTE, path, detail, is_left_to_opening=True)


def _is_torn(records: FileRecords, position: int) -> bool:
    """Whether a crash can have left the bytes at `position`: a torn batch, or zeros."""
    try:
        size = frame_size(records.file.read_at(position, UP_TO_MAGIC_BYTES))
    except CorruptBatch:
        return records.is_zeros_from(position)
    return size is None or position + size > records.size_bytes
