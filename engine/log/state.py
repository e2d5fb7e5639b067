"""The state that a log's lock guards, each step under it, and the core that a log's parts share.

Every method of the state but `view` needs the log lock. `Log` calls the steps in order; the steps
decide where batches are placed, when a segment rolls, and what changes when an offset moves.

Every part keeps the same core. When the log moves to another data directory, context and state are
replaced under all locks. So a part reads both from the core at the start of each step, and uses
that pair until the step ends.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from engine.errors import (
    InvalidRecord,
    Overloaded,
    StorageFull,
    StorageOffline,
    TopicNotFound,
    UnexpectedAppendOffset,
    WouldBlock,
)
from engine.fs.port import OpenDirectory
from engine.log.analyse import Incoming
from engine.log.files import LocalLog, LogContext
from engine.log.open.loader import LoadedLog, LoadRequest
from engine.log.results import Appended, CopySource, Fetched, LogTag
from engine.log.truncation import Truncation
from engine.records.header import MAGIC_2, BatchHeader
from engine.segment.segment import RollParams, Segment, locate_surely
from engine.segment.segments import NO_SEGMENTS, SegmentSnapshot
from engine.state.producer_table import encode_windows
from engine.state.producer_verdict import Accepted, Duplicate
from engine.state.watermarks import Watermarks
from engine.types import (
    INT32_MAX,
    INT64_MAX,
    AppendOrigin,
    LogStartReason,
    OffsetMetadata,
    TopicPartition,
)

_LOG = logging.getLogger(__name__)

NO_BATCH_CRC = 0
"""The checksum in the tag of an empty log."""


class LogState:
    """Segments, epochs, producers and offsets of one log."""

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        request: LoadRequest,
        loaded: LoadedLog,
    ) -> None:
        self._context = context
        self.topic_partition = topic_partition
        self._is_gapless = request.is_gapless
        self.keeps_order = not request.is_gapless
        """Whether a roll syncs the old segment first; see `roll`."""
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.local = LocalLog(context, request.directory, request.config, loaded.segments)
        if not loaded.recovery.was_clean:
            self.local.distrust_above(loaded.offsets.recovery_point)
        self.recovery_point = loaded.offsets.recovery_point
        self.truncations = 0
        """Raised by one when a truncation begins and when it ends: odd during a truncation. The
        result of a sync or look-up that overlaps a truncation is discarded."""
        self.archived = NO_SEGMENTS
        """The segments that the archive has, as far as known, up to some that the disk has too.
        Replaced as a whole by the archive; `readable` takes those before the first on the disk."""
        self._readable: _Readable | None = None
        end = loaded.offsets.end
        start = loaded.offsets.log_start_offset
        # After a clean stop everything is on disk; after an unclean one, with the next commit.
        is_on_disk = loaded.recovery.was_clean or start == end.offset
        on_disk = max(start, self.local.segments.first_base_offset)  # the archive is committed
        high = end if is_on_disk else OffsetMetadata(on_disk)
        self.watermarks = Watermarks(start, high, end)
        self.leader_epoch = self._claim_epoch(request, end.offset)
        self.watermarks = self.watermarks.in_epoch(self.leader_epoch)
        self.tag = LogTag(self.leader_epoch, end.offset, self._crc_of_last_batch())
        self.producers.on_high_watermark(high.offset)
        self.refresh_first_unstable()

    def _claim_epoch(self, request: LoadRequest, end_offset: int) -> int:
        """Return the log's leader epoch; record it if loading trimmed it or it must rise.

        It rises if visible records were lost. It never falls: a `log_id` must not refer to another
        log.
        """
        latest = self.epochs.latest
        latest_epoch = 0 if latest is None else latest.epoch
        epoch = max(self.epochs.highest_epoch_as_read, latest_epoch)
        if end_offset < request.high_watermark:
            epoch += 1
        if epoch > latest_epoch:
            self.epochs.assign(epoch, end_offset)
        return epoch

    def view(self) -> LogView | None:
        """Return a consistent view of the log; None during a truncation.

        Needs no lock. A result is valid if `truncations` still equals the view's afterwards.
        """
        truncations = self.truncations
        if truncations % 2:
            return None
        while True:
            marks = self.watermarks
            segments = self.readable()
            if marks is self.watermarks:  # otherwise the two may not match
                return LogView(segments, marks, marks.leader_epoch, truncations)

    def readable(self) -> SegmentSnapshot:
        """Return the segments of the whole log: those that only the archive has come first.

        They are missing while the archive is not known. The same object while nothing changes.
        Needs no lock.
        """
        start, local = self.watermarks.log_start_offset, self.local.segments.snapshot
        if start >= local.base_offsets[0]:
            return local  # all of the log is on the disk
        known, archived = self._readable, self.archived
        if known is None or known[:3] != (start, local, archived):
            bases = archived.base_offsets
            first = max(0, archived.floor_index(start))
            end = bisect_left(bases, local.base_offsets[0])
            whole = SegmentSnapshot(
                (*bases[first:end], *local.base_offsets),
                (*archived.segments[first:end], *local.segments),
            )
            self._readable = known = _Readable(start, local, archived, whole)
        return known.whole

    def _crc_of_last_batch(self) -> int:
        for segment in reversed(self.local.segments.snapshot.segments):
            if segment.size_bytes:
                start = segment.indexes.offset.last_entry.position
                return [header.crc for _, header in segment.headers(start)][-1]
        return NO_BATCH_CRC

    # -- append ------------------------------------------------------------------------------

    def place(self, incoming: Incoming, origin: AppendOrigin) -> Sequence[BatchHeader]:
        """Return the headers with their offsets; a leader's batches are not stamped yet.

        New leader epochs are written to disk. Raises UnexpectedAppendOffset.
        """
        end_offset = self.watermarks.end.offset
        if origin is AppendOrigin.REPLICATION:
            return self._accept_offsets(incoming, end_offset)
        count = sum(header.last_offset_delta + 1 for header in incoming.headers)
        _ensure_offsets_left(end_offset, count)
        epoch = self.leader_epoch
        latest = self.epochs.latest
        if latest is None or latest.epoch != epoch:  # otherwise the epoch is recorded already
            with self._context.health.appending:
                self.epochs.assign(epoch, end_offset)
        headers: list[BatchHeader] = []
        for header in incoming.headers:
            headers.append(BatchHeader(end_offset, header[1], epoch, *header[3:]))
            end_offset += header.last_offset_delta + 1
        return headers

    def _accept_offsets(self, incoming: Incoming, end_offset: int) -> Sequence[BatchHeader]:
        headers = incoming.headers
        _ensure_offsets_left(headers[-1].last_offset if headers else -1, 1)
        if headers and headers[0].base_offset < end_offset:
            raise UnexpectedAppendOffset(
                f"offset {headers[0].base_offset} is below the log end {end_offset}",
                first_offset=headers[0].base_offset,
                last_offset=headers[-1].last_offset,
                log_end_offset=end_offset,
            )
        self.local.active.take_back_room()  # it holds for the epoch that is recorded
        with self._context.health.appending:
            for header in headers:
                if header.leader_epoch >= 0:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                    self.leader_epoch = max(self.leader_epoch, header.leader_epoch)
                elif header.magic < MAGIC_2 and self.epochs.latest is not None:
                    self.epochs.clear_and_flush()  # messages of magic 0 and 1 have no epochs
        return headers

    @property
    def is_at_hand(self) -> bool:
        """Whether an append without a roll would not open, create, stat or write another file."""
        latest = self.epochs.latest
        is_noted = latest is not None and latest.epoch == self.leader_epoch
        return is_noted and self.local.segments.active.is_at_hand

    def is_ready_for(
        self, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether such an append is only a write to the active segment."""
        return self.is_at_hand and not self.is_roll_due(
            size_bytes, max_timestamp, last_offset, now_ms
        )

    def is_roll_due(
        self, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether an append of that size, time in ms and last offset needs a new segment."""
        config = self.local.config
        params = RollParams(
            config.max_segment_ms,
            config.segment_bytes,
            max_timestamp,
            last_offset,
            size_bytes,
            now_ms,
        )
        try:
            return self.local.segments.active.should_roll(params)
        except OSError:  # an index could not be opened
            with self._context.health.appending:
                raise

    def roll_before(self, headers: Sequence[BatchHeader], *, nonblocking: bool) -> None:
        """Open a new segment for these batches; with `nonblocking` raise WouldBlock instead."""
        if nonblocking:
            raise WouldBlock
        self.ensure_room()
        is_old = headers[0].magic < MAGIC_2  # not decompressed for it, as in Kafka
        self.roll(headers[-1].last_offset - INT32_MAX if is_old else headers[0].base_offset)

    def ensure_room(self) -> None:
        """Raise Overloaded if the log has its maximum of segments."""
        limit = self._context.config.max_segments_per_partition
        if len(self.local.segments) >= limit:
            raise Overloaded(
                f"{self.topic_partition} has {limit} segments: raise segment.bytes, or remove some",
                limit="max_segments_per_partition",
            )
        self._context.sealed_room.take(1)

    def write(
        self, incoming: Incoming, headers: Sequence[BatchHeader], verdict: Accepted
    ) -> Appended:
        """Write the batches and publish the log end, even if a later step fails."""
        if headers is not incoming.headers:
            incoming.stamp(headers)
        try:
            with self._context.health.appending:
                end = self.local.append(incoming, headers, self.producers.aborted_by(verdict))
        except BaseException:
            incoming.stamp(incoming.headers)  # not earlier: a refused append is unchanged
            raise
        # The epoch rises here only by a copy's batches; otherwise it is the one already.
        self.watermarks = self.watermarks.with_end(end).in_epoch(self.leader_epoch)
        self.tag = LogTag(self.leader_epoch, end.offset, headers[-1].crc)
        if verdict.entries:
            for completed in self.producers.apply(verdict):
                self.producers.decide(completed)
            self.refresh_first_unstable()
        self.producers.map_end_offset = end.offset
        first_offset, last_offset = headers[0].base_offset, headers[-1].last_offset
        count = last_offset - first_offset + 1
        timestamp, marks, tag = incoming.max_timestamp, self.watermarks, self.tag
        return Appended(first_offset, last_offset, count, timestamp, False, marks, tag, headers)

    def duplicate(self, verdict: Duplicate) -> Appended:
        """Return the result of the append that this one repeats, with the present watermarks."""
        first, last = verdict.first_offset, verdict.last_offset
        count = last - first + 1
        return Appended(first, last, count, verdict.timestamp, True, self.watermarks, self.tag)

    # -- offsets -----------------------------------------------------------------------------

    def raise_high_watermark(self, target: OffsetMetadata) -> None:
        """Raise the high watermark to `target`, which is on disk."""
        raised = self.watermarks.with_high(target)
        if raised is not self.watermarks:
            self.watermarks = raised
            if raised.first_unstable is not None:  # else no transaction waits for it
                self.producers.on_high_watermark(raised.high_watermark)
                self.refresh_first_unstable()

    def raise_log_start(self, offset: int, reason: LogStartReason) -> None:
        """Raise the log start to `offset`; the bytes below it stay until retention."""
        if offset > self.watermarks.log_start_offset:
            _LOG.info(
                "the log start of %s is now %d: %s", self.topic_partition, offset, reason.value
            )
            self.watermarks = self.watermarks.with_log_start(offset)
            self.recovery_point = max(self.recovery_point, offset)
            self.epochs.truncate_from_start(offset)
            self.producers.on_log_start(offset)
            self.refresh_first_unstable()

    def refresh_first_unstable(self) -> None:
        """Update the start of the earliest undecided transaction from the producer state."""
        unstable = self.producers.first_unstable_offset
        marks = self.watermarks
        if unstable is not None and (
            unstable.is_offset_only or unstable.offset < marks.log_start_offset
        ):
            unstable = self._place_of(max(unstable.offset, marks.log_start_offset))
        self.watermarks = marks.with_first_unstable(unstable)

    def _place_of(self, offset: int) -> OffsetMetadata:
        """Return `offset` with the position of the first batch that ends at or after it.

        Without the position if files or memory are lacking; the next refresh tries again. Raises
        StorageOffline.
        """
        try:
            with self._context.health.trying:  # a failure must not stop readers
                for segment in self.local.segments.overlapping(
                    offset, self.watermarks.end.offset + 1
                ):
                    found = locate_surely(segment, offset)
                    if found is not None:
                        return OffsetMetadata(offset, segment.base_offset, found.position)
        except (Overloaded, StorageFull):
            return OffsetMetadata(offset)
        # Not the log end itself, as in Kafka: the offset would go back with the next append.
        return self.watermarks.end._replace(offset=offset)

    # -- segments ----------------------------------------------------------------------------

    def roll(self, base_offset: int) -> None:
        """Open a segment at `base_offset` or the log end; write a producer snapshot.

        The scheduled flush syncs both; the recovery point stays below until then. A full disk may
        leave a segment without a snapshot; the next roll repeats the step. In compacted logs the
        old segment is synced first, because after a power cut its lost tail would look like a gap
        that compaction left.
        """
        end_offset = self.watermarks.end.offset
        new_base = max(base_offset, end_offset)
        if self.keeps_order:
            with self._context.health.syncing:
                self.local.active.records.sync()
        with self._context.health.appending:
            if new_base > end_offset and self._is_gapless:
                self.local.note_gap(end_offset, new_base)
            self.local.roll(new_base)
            self.watermarks = self.watermarks.with_end(self.local.end_metadata(end_offset))
            self.producers.map_end_offset = new_base
            self.producers.take_snapshot(sync=False)
        self._context.recorder.rolled(self.topic_partition)

    def remove_oldest(self) -> None:
        """Remove the oldest segment, which lies below the log start or is archived."""
        oldest = self.local.segments.first
        with self._context.health.writing:
            self.local.remove_segments((oldest,))
            self._retire_snapshot(oldest.base_offset)

    def begin_removal(self, end_offset: int) -> Segment:
        """Remove the oldest segment as the first of several; call `local.retire` after the last."""
        oldest = self.local.segments.first
        with self._context.health.writing:
            self.local.begin_removal(oldest, end_offset)
            self._retire_snapshot(oldest.base_offset)
        return oldest

    def _retire_snapshot(self, offset: int) -> None:
        retired = self.producers.snapshot_for_deletion(offset)
        if retired is not None:
            self.local.remove_later(
                lambda: self._context.fs.remove(retired, missing_ok=True), f"snapshot {offset}"
            )

    def swap_in(self, output: Segment, sources: Sequence[Segment]) -> None:
        """Replace the sources by a `.swap` segment; the caller renames and syncs."""
        self.local.segments.replace([output], sources)
        for source in sources:
            self.local.retire(source)
            if source.base_offset != output.base_offset:
                self._retire_snapshot(source.base_offset)

    def truncate_to(self, offset: int, plan: Truncation | None) -> None:
        """Truncate the log to `offset`, which is below the log end, in a new leader epoch.

        A batch that holds `offset` is removed whole, yet the log end becomes `offset`; if it was
        the first batch, the log start does too. Without a plan the whole log lies above `offset`.
        The high watermark moves first. Kafka's `UnifiedLog.truncateTo`.
        """
        with self._truncating() as directory:
            marks = self.watermarks
            begins_in_archive = marks.log_start_offset < self.local.segments.first_base_offset
            start = min(marks.log_start_offset, offset)
            high = min(marks.high, OffsetMetadata(offset), key=lambda place: place.offset)
            self.watermarks = Watermarks(
                start, high, marks.end, marks.first_unstable, marks.leader_epoch
            )
            if plan is None:
                self._restart_at(offset, directory)
            else:
                self._cut_to(offset, plan, directory)
                if not begins_in_archive:  # else the first segment on the disk is not the first
                    first = self.local.segments.first_base_offset
                    self.watermarks = self.watermarks.with_log_start(first)
            self.producers.on_high_watermark(self.watermarks.high_watermark)
            self.refresh_first_unstable()

    @contextmanager
    def _truncating(self) -> Iterator[OpenDirectory]:
        """Guard a truncation and raise the leader epoch; readers wait for its end.

        Yields the log's directory, opened in advance: within the block a failed open would take the
        data directory offline.

        The new epoch changes `log_id`, which invalidates caches. It is on disk before anything is
        cut; otherwise, after a crash, other records could get the old epoch. If writing it raises
        StorageFull or Overloaded, nothing has changed.
        """
        health = self._context.health
        with ExitStack() as stack:
            with health.trying:
                directory = stack.enter_context(
                    self._context.fs.open_directory(self.local.directory)
                )
                self.epochs.assign(self.leader_epoch + 1, self.watermarks.log_end_offset)
            self.truncations += 1
            try:
                self.leader_epoch += 1
                with health.writing:
                    yield directory
            finally:
                self.truncations += 1

    def _cut_to(self, offset: int, plan: Truncation, directory: OpenDirectory) -> None:
        removed = self.local.segments.above(offset)
        self.local.truncate(plan.cut, directory)
        for segment in removed:
            self._retire_snapshot(segment.base_offset)
        self.local.end_at(offset, plan.last, notes_gap=self._is_gapless)
        self.local.sync_end(directory)
        self.epochs.move_start(offset)  # after the sync: no old record can come back
        self.producers.go_back_to(plan.producers)
        self._end_at(offset, NO_BATCH_CRC if plan.last is None else plan.last.crc)

    def _restart_at(self, offset: int, directory: OpenDirectory) -> None:
        self.local.restart_at(offset, directory)
        self.local.sync_end(directory)
        self.epochs.move_start(offset)
        self.epochs.truncate_from_start(offset)
        self.producers.truncate_fully(offset)
        self.producers.on_log_start(offset)
        self.watermarks = Watermarks.empty_at(offset, offset, self.watermarks.leader_epoch)
        self._end_at(offset, NO_BATCH_CRC)

    def _end_at(self, offset: int, last_crc: int) -> None:
        # Offsets and epoch change together: until here readers see the old log, if any.
        marks = self.watermarks.truncated(self.local.end_metadata(offset))
        self.watermarks = marks.in_epoch(self.leader_epoch)
        self.recovery_point = min(self.recovery_point, offset)
        self.tag = LogTag(self.leader_epoch, offset, last_crc)

    def stand_still(self, read: Callable[[int, int], Fetched]) -> CopySource:
        """Return the source of a copy, under all locks; `read` reads the log."""
        marks = self.watermarks
        return CopySource(
            marks.log_start_offset,
            marks.log_end_offset,
            self.epochs.entries,
            self.producers.encoded(),  # in memory: this disk may have no space left
            encode_windows(self.producers.recent()),
            read,
        )

    def go_on_from(self, before: LogState) -> None:
        """Take over requested changes from the state in the previous directory."""
        self.keeps_order |= before.keeps_order
        self.truncations = before.truncations
        self.archived = before.archived

    def rename_directory(self, directory: Path) -> None:
        """Rename the directory, not yet durably."""
        self.local.rename_directory(directory)
        self.producers.move_to(directory)
        self.epochs.move_to(directory)

    def check_invariants(self) -> None:
        """Fail unless segments, watermarks and producer state agree."""
        segments = self.local.segments
        segments.check_invariants()
        segments.active.check_invariants()
        marks = self.watermarks
        is_whole = segments.first_base_offset <= marks.log_start_offset
        assert is_whole or self.local.config.remote_storage_enable
        assert marks.end.segment_base_offset == segments.active.base_offset
        assert marks.end.position == segments.active.size_bytes
        assert self.recovery_point <= marks.log_end_offset
        self.producers.check_invariants()


def _ensure_offsets_left(offset: int, count: int) -> None:
    """Raise InvalidRecord if so many records from an offset on leave no offset for the log end."""
    if count > INT64_MAX - offset:
        raise InvalidRecord(
            f"records from offset {offset} on do not fit: offsets end at 2^63 - 1; append to "
            "another topic"
        )


class _Readable(NamedTuple):
    """The segments of a whole log, and what they were put together from."""

    log_start_offset: int
    local: SegmentSnapshot
    archived: SegmentSnapshot
    whole: SegmentSnapshot


class LogView(NamedTuple):
    """Matching segments and watermarks."""

    segments: SegmentSnapshot
    """Those that only the archive has come first, as far as the archive is known."""
    marks: Watermarks
    leader_epoch: int
    truncations: int
    """The value of `LogState.truncations` when the view was taken: even."""


PATIENCE_SECONDS: Final = 0.002
"""Longer than any step under a lock that does not wait for the disk; see docs/concurrency.md."""


class Impatient:
    """A lock for callers that must not wait: `with` raises WouldBlock after a short timeout."""

    __slots__ = ("_lock", "_seconds")

    def __init__(self, lock: threading.Lock, seconds: float = PATIENCE_SECONDS) -> None:
        self._lock = lock
        self._seconds = seconds

    def __enter__(self) -> None:
        acquire = self._lock.acquire
        if not (acquire(False) or acquire(timeout=self._seconds)):
            raise WouldBlock

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        self._lock.release()


class LogCore:
    """The locks are taken in the order of their definition; see docs/concurrency.md."""

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        topic_id: str,
        state: LogState,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.topic_id: Final = topic_id
        self.context = context
        self.state = state
        self.is_closed = False
        self.is_deleted = False
        """Whether the topic was deleted: reads continue, appends are refused."""
        self.reshaping: Final = threading.Lock()
        """While held, no segment is removed from the log."""
        self.syncing: Final = threading.Lock()
        """While held, no other thread commits."""
        self.naming: Final = threading.Lock()
        """While held, the directory is not renamed."""
        self.lock = threading.Lock()
        """Guards the state."""

    def ensure_open(self) -> None:
        """Raise StorageOffline if the log was closed."""
        if self.is_closed:
            raise self.closed()

    def ensure_kept(self) -> None:
        """Raise TopicNotFound if the topic was deleted."""
        if self.is_deleted:
            topic = self.topic_partition.topic
            raise TopicNotFound(f"topic {topic} was deleted", topic=topic)

    def closed(self) -> StorageOffline:
        """Return the error of an operation on a closed log."""
        name = str(self.topic_partition)
        return StorageOffline(f"{name} is closed", log=name)
