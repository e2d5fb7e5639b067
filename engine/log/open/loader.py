"""Loads a partition directory into a value: segments, offsets, epochs, producer state.

The passes, in the order of Kafka's `LogLoader`: leftovers of deletions and replacements, segments
and their indexes, recovery of the unflushed tail, leader epochs, producer state. The `.log` files
are the truth: what disagrees with them is rebuilt, and every cut is reported to the service's log,
the metrics and the caller. A gap between segments is accepted if it is intended or no records can
have been lost in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from engine.checkpoint.tidelog_files import SegmentGap, read_gaps
from engine.config import LogConfig
from engine.errors import (
    CorruptCheckpoint,
    CorruptIndex,
    SegmentOverflow,
    StoredDataCorrupt,
)
from engine.fs import names
from engine.fs.names import parse_partition_directory
from engine.fs.port import FileSystem
from engine.log.files import LocalLog, LogContext
from engine.log.open.found_files import FoundFiles, finish_replacements
from engine.log.open.rebuild import rebuild_epochs, rebuild_producers
from engine.log.results import LoadedOffsets, Recovery
from engine.metrics import Recorder
from engine.records.scan import Tail
from engine.segment.index_checks import ensure_sane
from engine.segment.recovery import SegmentRecovery, recover_segment, split_overflowed
from engine.segment.segment import Segment
from engine.segment.segments import Segments, close_all
from engine.state.epochs import LeaderEpochCache
from engine.state.producers import ProducerStates
from engine.types import INT64_MAX, OffsetMetadata, TopicPartition

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownGaps:
    """The intended gaps of one log."""

    is_gapless: bool = False
    """Whether all intended gaps are known, because the log was never compacted."""
    noted: Collection[SegmentGap] = ()
    epoch_starts: Collection[int] = ()

    @classmethod
    def read(
        cls, fs: FileSystem, path: Path | None, epochs: LeaderEpochCache, *, is_gapless: bool
    ) -> Self:
        """Return the gaps recorded in the file at `path`, if it exists, and in the epochs.

        A damaged file allows every gap.
        """
        epoch_starts = {entry.start_offset for entry in epochs.entries}
        if path is None:
            return cls(is_gapless, (), epoch_starts)
        try:
            noted = read_gaps(fs, path)
        except CorruptCheckpoint as error:
            _LOG.warning("%s: missing offsets will not be noticed: %s", path.parent, error)
            return cls(False, (), epoch_starts)
        return cls(is_gapless, noted, epoch_starts)

    def may_follow(self, base_offset: int, end_offset: int) -> bool:
        """Whether a segment may begin at `base_offset` after one that ends at `end_offset`.

        Compaction leaves gaps, and a follower's offsets may jump. A truncation inside a batch
        removes the whole batch, and the next epoch begins at the truncation offset.
        """
        return (
            base_offset == end_offset
            or not self.is_gapless
            or SegmentGap(end_offset, base_offset) in self.noted
            or base_offset in self.epoch_starts
        )


class RecoveryReport:
    """The report of one load; `recovery` is the result so far."""

    def __init__(self, directory: Path, recorder: Recorder, *, was_clean: bool) -> None:
        self.recovery = Recovery(was_clean)
        self._directory = directory
        self._recorder = recorder

    @property
    def _log(self) -> TopicPartition:
        return parse_partition_directory(self._directory.name).topic_partition

    def remaining(self, segments: int) -> None:
        """Report how many segments have yet to be scanned."""
        self._recorder.recovering(self._log, segments=segments)

    def scanned(self, segment: Segment, result: SegmentRecovery) -> None:
        """Report what the scan of one segment found and cut."""
        damaged = result.tail is Tail.DAMAGED
        if result.truncated_bytes:
            level = logging.ERROR if damaged else logging.WARNING
            _LOG.log(
                level,
                "%s: cut %d bytes after byte %d: %s",
                segment.records.path,
                result.truncated_bytes,
                result.scanned_bytes,
                result.reason,
            )
        elif damaged:
            _LOG.error(
                "%s is damaged after byte %d: %s",
                segment.records.path,
                result.scanned_bytes,
                result.reason,
            )
        self._recorder.recovered(
            self._log,
            scanned_bytes=result.scanned_bytes,
            truncated_bytes=result.truncated_bytes,
            damaged=damaged,
        )
        before = self.recovery
        self.recovery = replace(
            before,
            recovered_segments=before.recovered_segments + 1,
            scanned_bytes=before.scanned_bytes + result.scanned_bytes,
            truncated_bytes=before.truncated_bytes + result.truncated_bytes,
            damage=result.reason if damaged else before.damage,
        )

    def removed(self, count: int) -> None:
        """Count removed segments after the end of the log."""
        removed = self.recovery.removed_segments + count
        self.recovery = replace(self.recovery, removed_segments=removed)

    def lost(self, what: str) -> None:
        """Report missing records or wrong offsets; only the first fault is kept."""
        _LOG.error("%s: %s", self._directory, what)
        self.recovery = replace(self.recovery, damage=self.recovery.damage or what)

    def compare_with_promises(
        self, end_offset: int, *, recovery_point: int, high_watermark: int
    ) -> None:
        """Report if the log ends below what was durable and visible, or above its clean end."""
        promised = max(recovery_point, high_watermark)
        if end_offset < promised:
            self._recorder.records_missing(self._log, count=promised - end_offset)
            self.lost(
                f"the log ends at {end_offset}, but {promised} was on disk: records are missing"
            )
        elif self.recovery.was_clean and 0 < recovery_point < end_offset:
            # No checksum covers the offset of the last batch, and no later batch contradicts it.
            self.lost(
                f"the log ends at {end_offset}, but it was stopped at {recovery_point}: "
                "the last offset, or that checkpoint, is wrong"
            )


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What the manager knows of a log before opening it, from checkpoints and configuration."""

    directory: Path
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    was_clean: bool
    high_watermark: int = 0
    """The high watermark in the checkpoint, up to which readers saw the log."""
    is_gapless: bool = False
    """Whether every segment ends where the next begins, because the log was never compacted."""
    begins_in_archive: bool = False
    """Whether the archive has what lies between the log start and the first segment."""


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """The parts of a `Log`."""

    segments: Segments
    offsets: LoadedOffsets
    epochs: LeaderEpochCache
    producers: ProducerStates
    recovery: Recovery


class Loader:
    """One load; `load` is called once."""

    def __init__(self, context: LogContext, request: LoadRequest) -> None:
        self._context = context
        self._request = request
        self._fs = context.fs
        self._segments = Segments()
        self._report = RecoveryReport(
            request.directory, context.recorder, was_clean=request.was_clean
        )
        self._recovered_producers: ProducerStates | None = None
        """The producer state after the recovery scan; it has more batches than a snapshot holds."""
        self._are_epochs_lost = False
        self._gaps = KnownGaps()

    def load(self) -> LoadedLog:
        """Repair the log on disk and return it; raises OSError and StorageError.

        Raises InvalidDataDirectory if a directory has the name of one of its files.
        """
        try:
            return self._finish_and_load()
        except BaseException:
            close_all(self._segments)
            raise

    def _finish_and_load(self) -> LoadedLog:
        request = self._request
        self._look()
        if self._found.leftovers:
            finish_replacements(
                self._context, request.directory, request.config, self._found.leftovers
            )
            self._look()
        try:
            return self._load(self._open_epochs())
        except StoredDataCorrupt as error:
            raise StoredDataCorrupt(
                f"{error}; the log cannot be opened without that data: restore the file from "
                "a copy, or cut the log before the damage with `tidelog repair --cut`",
                file=error.file,
                position=error.position,
                offset=error.offset,
            ) from error

    def _load(self, epochs: LeaderEpochCache) -> LoadedLog:
        while (overflowed := self._open_and_recover(epochs)) is not None:
            self._split(overflowed)
        end_offset = self._end_offset(epochs)
        request = self._request
        self._report.compare_with_promises(
            end_offset, recovery_point=request.recovery_point, high_watermark=request.high_watermark
        )
        self._segments.active.make_active()
        log_start_offset = self._request.log_start_offset
        if not request.begins_in_archive:
            log_start_offset = max(log_start_offset, self._segments.first_base_offset)
        for segment in self._segments.overlapping(log_start_offset, log_start_offset + 1):
            segment.proofs.log_start_offset = log_start_offset
        epochs.truncate_from_end(end_offset)
        epochs.truncate_from_start(request.log_start_offset)
        producers = self._recovered_producers
        if producers is None:
            producers = self._new_producers()
        else:
            producers.rescan_snapshots()
        producers.remove_stray_snapshots(self._segments.base_offsets)
        rebuild_producers(
            producers,
            self._segments,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
            now_ms=self._context.clock.now_ms(),
            reload_after_clean=request.was_clean,
        )
        active = self._segments.active
        end = OffsetMetadata(end_offset, active.base_offset, active.size_bytes)
        recovery_point = (
            end_offset if request.was_clean else min(request.recovery_point, end_offset)
        )
        offsets = LoadedOffsets(log_start_offset, recovery_point, end)
        return LoadedLog(self._segments, offsets, epochs, producers, self._report.recovery)

    def _open_and_recover(self, epochs: LeaderEpochCache) -> Segment | None:
        """Open and repair the segments; return a segment that must be split first, if any."""
        close_all(self._segments)
        self._segments.replace(self._open_segments(), self._segments)
        if self._are_epochs_lost:
            rebuild_epochs(epochs, self._segments)
        self._gaps = self._read_gaps(epochs)
        if not self._request.was_clean:
            self._trim_below_recovery_point()
        try:
            self._rebuild_missing_indexes(epochs)
            if not self._request.was_clean:
                self._recover_tail(epochs)
        except SegmentOverflow as error:
            path = error.facts()["segment"]
            return next(segment for segment in self._segments if str(segment.records.path) == path)
        return None

    def _look(self) -> None:
        """List the directory, at first and after each change of file names."""
        self._found = FoundFiles.of(self._fs, self._request.directory)

    def _open_epochs(self) -> LeaderEpochCache:
        """Return the recorded epochs; rebuild the file from the log if it is missing or damaged."""
        directory = self._request.directory
        self._are_epochs_lost = names.LEADER_EPOCH_CHECKPOINT not in self._found.names
        try:
            return LeaderEpochCache(self._fs, directory)
        except CorruptCheckpoint as error:
            _LOG.warning("%s: rebuilding the leader epochs: %s", directory, error)
        self._are_epochs_lost = True
        self._fs.remove(directory / names.LEADER_EPOCH_CHECKPOINT)
        return LeaderEpochCache(self._fs, directory)

    def _read_gaps(self, epochs: LeaderEpochCache) -> KnownGaps:
        directory = self._request.directory
        has_file = names.SEGMENT_GAPS in self._found.names
        path = directory / names.SEGMENT_GAPS if has_file else None
        return KnownGaps.read(self._fs, path, epochs, is_gapless=self._request.is_gapless)

    def _split(self, segment: Segment) -> None:
        """Replace a segment by its parts; remove the snapshot of its base offset."""
        _LOG.warning("%s holds offsets too far from its base offset; splitting it", segment)
        local = LocalLog(
            self._context, self._request.directory, self._request.config, self._segments
        )
        parts = split_overflowed(segment, self._create_cleaned)
        local.replace_segments(parts, [segment])
        self._new_producers().delete_snapshot(segment.base_offset)
        self._look()

    def _create_cleaned(self, base_offset: int) -> Segment:
        directory = self._request.directory
        path = directory / (names.log_name(base_offset) + names.CLEANED_SUFFIX)
        self._fs.remove(path, missing_ok=True)
        return self._segment(base_offset, is_new=True, suffix=names.CLEANED_SUFFIX)

    def _new_producers(self) -> ProducerStates:
        return ProducerStates(
            self._fs,
            self._request.directory,
            clock=self._context.clock,
            expiration_ms=self._context.config.producer_id_expiration_ms,
            max_producers=self._context.config.max_producers_per_partition,
            room=self._context.producer_room,
            snapshots=self._found.snapshots,
        )

    def _segment(self, base_offset: int, suffix: str = "", **how: bool) -> Segment:
        return Segment(
            self._fs,
            self._request.directory,
            base_offset,
            self._request.config,
            now_ms=self._context.clock.now_ms(),
            jitter_ms=self._context.draw_jitter_ms(self._request.config),
            suffix=suffix,
            **how,
        )

    def _open_segments(self) -> list[Segment]:
        """Open every segment and remove indexes without a log file."""
        directory = self._request.directory
        for name in self._found.orphans:
            _LOG.warning("%s: removing %s, which has no log file", directory, name)
            self._fs.remove(directory / name)
        opened: list[Segment] = []
        try:
            for base_offset in self._found.base_offsets:
                is_resting = base_offset != self._found.base_offsets[-1]
                opened.append(self._segment(base_offset, is_resting=is_resting))
        except BaseException:
            close_all(opened)
            raise
        return opened

    def _rebuild_missing_indexes(self, epochs: LeaderEpochCache) -> None:
        """Recover the segments below the recovery point whose indexes are missing or wrong.

        Segments above the recovery point are scanned later anyway, and cannot be read before that.
        Everything below it is on disk.
        """
        for segment in self._segments:
            if not self._request.was_clean and segment.base_offset >= self._first_to_recover():
                break
            try:
                next_offset = self._ensure_indexed(segment)
            except CorruptIndex as error:
                _LOG.warning("%s: rebuilding its indexes: %s", segment, error)
                self._report_shortened(segment)
                result = self._reindex(segment, epochs)
                next_offset = None if result.tail is Tail.DAMAGED else result.next_offset
            self._report_gap(segment, next_offset)

    def _reindex(self, segment: Segment, epochs: LeaderEpochCache) -> SegmentRecovery:
        """Rebuild the indexes of a segment below the recovery point; newer snapshots stay.

        Only they still have producers whose batches retention has removed.
        """
        producers = self._new_producers()
        before = producers.snapshots
        producers.overlook_snapshots_above(segment.base_offset)
        segment.indexes.begin_anew()
        try:
            result = self._recover_one(segment, producers, epochs, keeps_tail=True)
        except SegmentOverflow:
            segment.indexes.begin_anew()  # so that a crash cannot leave half of them
            raise
        segment.indexes.finish_anew()
        self._rest(segment)
        if producers.map_end_offset not in before:
            producers.take_snapshot(sync=True)
        self._look()
        return result

    def _ensure_indexed(self, segment: Segment) -> int | None:
        """As `ensure_sane`; a missing index is CorruptIndex too."""
        base_offset = segment.base_offset
        for name in (names.index_name(base_offset), names.time_index_name(base_offset)):
            if name not in self._found.names:
                path = self._request.directory / name
                raise CorruptIndex(f"there is no {name}", file=str(path))
        has_transactions = names.txn_index_name(base_offset) in self._found.names
        next_offset = ensure_sane(segment, has_transactions=has_transactions)
        segment.load_maximum()
        self._rest(segment)
        return next_offset

    def _rest(self, segment: Segment) -> None:
        if segment is self._segments.active:
            segment.indexes.rest()
        else:
            segment.resting.allow(self._context.sealed_files)

    def _report_shortened(self, segment: Segment) -> None:
        """Report a log file that lost its end, if no gap between segments shows it."""
        if self._gaps.is_gapless or segment is self._segments.active:
            return  # a gap or a checkpoint shows it
        path, size_bytes = segment.records.path, segment.size_bytes
        index_paths = (segment.indexes.offset_path, segment.indexes.time_path)
        has_bytes = [*map(self._has_bytes, index_paths)]
        if size_bytes == 0 and any(has_bytes):
            self._report.lost(f"{path} is empty, but its indexes are not")
        elif has_bytes[0] and segment.indexes.sound_position() >= size_bytes:
            self._report.lost(f"{path} ends before what {index_paths[0].name} points at")

    def _has_bytes(self, path: Path) -> bool:
        return self._fs.exists(path) and self._fs.size_bytes(path) > 0

    def _report_gap(self, segment: Segment, next_offset: int | None) -> None:
        """Report missing offsets after a segment, or offsets that reach into the next one."""
        following = self._segments.higher(segment.base_offset)
        if following is None or next_offset is None or next_offset == following.base_offset:
            return
        path = segment.records.path
        if next_offset > following.base_offset:
            self._report.lost(f"{path} ends at {next_offset}, above {following.base_offset}")
        elif not self._gaps.may_follow(following.base_offset, next_offset):
            missing = f"offsets {next_offset} to {following.base_offset - 1} are missing"
            self._report.lost(f"{missing} after the end of {path}")

    def _trim_below_recovery_point(self) -> None:
        """Cut the preallocated tail of a segment that ends at the recovery point.

        A roll cut it, after the flush that wrote the recovery point, and a power cut may bring it
        back while the next segment stays. Everything else below the recovery point is on disk.
        """
        end_offset = self._request.recovery_point
        segment = self._segments.floor(end_offset - 1)
        following = self._segments.floor(end_offset)
        if segment is None or following is None or following.base_offset != end_offset:
            return
        has_index = names.index_name(segment.base_offset) in self._found.names
        start = segment.indexes.sound_position() if has_index else 0
        end, next_offset = 0, segment.base_offset
        try:
            for position, header in segment.headers(start):
                end, next_offset = position + header.size_bytes, header.next_offset
        except StoredDataCorrupt:
            if next_offset == end_offset and segment.records.is_zeros_from(end):
                segment.records.truncate(end)
                segment.records.sync()

    def _first_to_recover(self) -> int:
        floor = self._segments.floor(self._request.recovery_point)
        return self._segments.first_base_offset if floor is None else floor.base_offset

    def _recover_tail(self, epochs: LeaderEpochCache) -> None:
        """Scan from the recovery point on; after the first cut remove every later segment.

        A power cut may also lose the tail of a segment and keep the next segment. If compaction
        cannot have left that gap, the log ends before it.
        """
        if not len(self._segments):
            return
        producers = self._recovered_producers = self._new_producers()
        tail = self._segments.overlapping(self._first_to_recover(), INT64_MAX)
        try:
            for number, segment in enumerate(tail):
                self._report.remaining(len(tail) - number)
                if not self._recover_next(segment, producers, epochs):
                    break
        finally:
            self._report.remaining(0)

    def _recover_next(
        self, segment: Segment, producers: ProducerStates, epochs: LeaderEpochCache
    ) -> bool:
        """Scan a segment; return whether the log continues after it."""
        result = self._recover_one(
            segment, producers, epochs, before_cut=partial(self._remove_above, segment)
        )
        producers.take_snapshot(sync=True)
        if result.truncated_bytes:
            return False
        following = self._segments.higher(segment.base_offset)
        if following is None or self._gaps.may_follow(following.base_offset, result.next_offset):
            return True
        self._remove_above(segment)
        return False

    def _remove_above(self, segment: Segment) -> None:
        """Remove the later segments, the last one first, so that a crash leaves no gap."""
        later = self._segments.above(segment.base_offset)
        for lost in reversed(later):
            _LOG.error("removing %s: the log ends before it, in %s", lost, segment.records.path)
            self._segments.remove(lost.base_offset)
            lost.change_suffix(names.DELETED_SUFFIX)
            lost.close_handles()
        self._fs.sync_directory(self._request.directory)
        self._report.removed(len(later))

    def _recover_one(
        self,
        segment: Segment,
        producers: ProducerStates,
        epochs: LeaderEpochCache,
        *,
        keeps_tail: bool = False,
        before_cut: Callable[[], None] | None = None,
    ) -> SegmentRecovery:
        """Rebuild one segment and its producer state; report what was cut."""
        rebuild_producers(
            producers,
            self._segments,
            log_start_offset=self._request.log_start_offset,
            end_offset=segment.base_offset,
            now_ms=self._context.clock.now_ms(),
            reload_after_clean=False,
        )
        above = self._segments.higher(segment.base_offset)
        result = recover_segment(
            segment,
            producers,
            epochs,
            keeps_tail=keeps_tail,
            before_cut=before_cut,
            following=INT64_MAX if above is None else above.base_offset,
        )
        self._report.scanned(segment, result)
        return result

    def _end_offset(self, epochs: LeaderEpochCache) -> int:
        """Return the log end; a log that ends below its start is replaced by an empty one."""
        start = self._request.log_start_offset
        if len(self._segments):
            end_offset = self._segments.active.read_next_offset()
            if end_offset >= start:
                return end_offset
            promised = max(self._request.recovery_point, self._request.high_watermark)
            if self._request.was_clean and promised < start:
                # A clean stop wrote all three, and no start is above what was committed.
                _LOG.warning(
                    "the checkpoint has the start of %s at %d, above all that was committed (%d): "
                    "starting it where its first segment does",
                    self._request.directory,
                    start,
                    promised,
                )
                self._request = replace(self._request, log_start_offset=0)
                return end_offset
            # Whatever took its end away: for readers, what is below the start is deleted.
            _LOG.warning(
                "%s ends at %d, below its start %d: starting an empty log there",
                self._request.directory,
                end_offset,
                start,
            )
            for segment in self._segments:
                segment.change_suffix(names.DELETED_SUFFIX)
                segment.close_handles()
            self._segments.clear()
            epochs.clear_and_flush()
            self._recovered_producers = None
            self._new_producers().truncate_fully(start)
            self._look()
        self._segments.add(self._segment(start, is_new=True))
        self._fs.sync_directory(self._request.directory)
        return start
