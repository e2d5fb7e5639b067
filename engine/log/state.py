"""What the lock of a log guards, and the steps that are taken under it.

Every method is called with the log lock held. `Log` decides when; this decides how: where batches
are placed, when a segment rolls, what moves when an offset moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.errors import Overloaded, StorageFull, UnexpectedAppendOffset
from engine.fs.port import OpenDirectory
from engine.guard import WouldBlock
from engine.log.append.analyse import Incoming
from engine.log.context import LogContext
from engine.log.files import LocalLog
from engine.log.open.loader import LoadedLog, LoadRequest
from engine.log.results import Appended, CopySource, Fetched, LogTag
from engine.log.truncation import Truncation
from engine.log.view import LogView
from engine.records.header import MAGIC_2, BatchHeader
from engine.segment.roll_params import RollParams
from engine.segment.segment import Segment, locate_surely
from engine.state.producer_windows import encode_windows
from engine.state.verdict import Accepted, Duplicate
from engine.state.watermarks import Watermarks
from engine.types import (
    INT32_MAX,
    AppendOrigin,
    LogStartReason,
    OffsetMetadata,
    TopicPartition,
)

_LOG = logging.getLogger(__name__)

NO_BATCH_CRC = 0
"""The checksum in the tag of a log without a batch."""


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
        """Whether a segment is on the disk before the next one exists; see `roll`."""
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.local = LocalLog(context, request.directory, request.config, loaded.segments)
        if not loaded.recovery.was_clean:
            self.local.distrust_above(loaded.offsets.recovery_point)
        self.recovery_point = loaded.offsets.recovery_point
        self.truncations = 0
        """Counts each beginning and end of what takes the log end back: odd while it is under
        way. A sync or a look that overlaps it counts for nothing."""
        end = loaded.offsets.end
        start = loaded.offsets.log_start_offset
        # What a clean stop left is on disk; what an unclean one left is, after the next commit.
        is_on_disk = loaded.recovery.was_clean or start == end.offset
        high = end if is_on_disk else OffsetMetadata(start)
        self.watermarks = Watermarks(start, high, end)
        self.leader_epoch = self._claim_epoch(request, end.offset)
        self.tag = LogTag(self.leader_epoch, end.offset, self._crc_of_last_batch())
        self.producers.on_high_watermark(high.offset)
        self.refresh_first_unstable()

    def _claim_epoch(self, request: LoadRequest, end_offset: int) -> int:
        """Return the epoch of this log, and note it if loading trimmed it or it has to rise.

        It rises if records are gone that readers had been shown. It never falls: `log_id` must not
        come to mean another log.
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
        """Return the log as it is at one moment; None while its end is being taken back.

        Needs no lock. What was seen holds if `truncations` is still the view's afterwards.
        """
        truncations = self.truncations
        if truncations % 2:
            return None
        while True:
            marks = self.watermarks
            segments = self.local.segments.snapshot
            if marks is self.watermarks:  # else the two may be of different moments
                return LogView(segments, marks, self.leader_epoch, truncations)

    def _crc_of_last_batch(self) -> int:
        for segment in reversed(self.local.segments.snapshot.segments):
            if segment.size_bytes:
                start = segment.indexes.offset.last_entry.position
                return [header.crc for _, header in segment.headers(start)][-1]
        return NO_BATCH_CRC

    # -- append ------------------------------------------------------------------------------

    def place(self, incoming: Incoming, origin: AppendOrigin) -> Sequence[BatchHeader]:
        """Return the headers with their offsets; those of a leader are assigned, not yet stamped.

        New epochs are noted, on disk. Raises UnexpectedAppendOffset.
        """
        end_offset = self.watermarks.end.offset
        if origin is AppendOrigin.REPLICATION:
            return self._accept_offsets(incoming, end_offset)
        epoch = self.leader_epoch
        latest = self.epochs.latest
        if latest is None or latest.epoch != epoch:  # else nothing to note: offsets ascend
            with self._context.health.appending:
                self.epochs.assign(epoch, end_offset)
        headers: list[BatchHeader] = []
        for header in incoming.headers:
            headers.append(BatchHeader(end_offset, header[1], epoch, *header[3:]))
            end_offset += header.last_offset_delta + 1
        return headers

    def _accept_offsets(self, incoming: Incoming, end_offset: int) -> Sequence[BatchHeader]:
        headers = incoming.headers
        if headers and headers[0].base_offset < end_offset:
            raise UnexpectedAppendOffset(
                f"offset {headers[0].base_offset} is below the log end {end_offset}",
                first_offset=headers[0].base_offset,
                last_offset=headers[-1].last_offset,
                log_end_offset=end_offset,
            )
        with self._context.health.appending:
            for header in headers:
                if header.leader_epoch >= 0:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                    self.leader_epoch = max(self.leader_epoch, header.leader_epoch)
                elif header.magic < MAGIC_2 and self.epochs.latest is not None:
                    self.epochs.clear_and_flush()  # these formats know none: theirs would be wrong
        return headers

    def ensure_at_hand(self) -> None:
        """Raise WouldBlock if an append has to open, make or look at a file first."""
        latest = self.epochs.latest
        is_noted = latest is not None and latest.epoch == self.leader_epoch
        if not is_noted or not self.local.segments.active.is_at_hand:
            raise WouldBlock

    def is_roll_due(self, incoming: Incoming, headers: Sequence[BatchHeader], now_ms: int) -> bool:
        """Return whether the active segment must not take these batches."""
        config = self.local.config
        params = RollParams(
            config.max_segment_ms,
            config.segment_bytes,
            incoming.max_timestamp,
            headers[-1].last_offset,
            len(incoming.buffer),
            now_ms,
        )
        try:
            return self.local.segments.active.should_roll(params)
        except OSError:  # an index that was not open yet
            with self._context.health.appending:
                raise

    def roll_before(self, headers: Sequence[BatchHeader], *, nonblocking: bool) -> None:
        """Open a new segment for these batches; with `nonblocking` raise WouldBlock instead."""
        if nonblocking:
            raise WouldBlock
        self.ensure_room()
        is_old = headers[0].magic < MAGIC_2  # Kafka does not look inside for the true first offset
        self.roll(headers[-1].last_offset - INT32_MAX if is_old else headers[0].base_offset)

    def ensure_room(self) -> None:
        """Raise Overloaded unless there may be one more segment."""
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
        """Write and publish. The log end moves even if a line after the write fails."""
        if headers is not incoming.headers:
            incoming.stamp(headers)
        try:
            with self._context.health.appending:
                end = self.local.append(incoming, headers, self.producers.aborted_by(verdict))
        except BaseException:
            incoming.stamp(incoming.headers)  # the caller of a refused append has its bytes as sent
            raise
        self.watermarks = self.watermarks.with_end(end)
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
        """Return what the append that is repeated did, and where the log is now."""
        first, last = verdict.first_offset, verdict.last_offset
        count = last - first + 1
        return Appended(first, last, count, verdict.timestamp, True, self.watermarks, self.tag)

    # -- offsets -----------------------------------------------------------------------------

    def raise_high_watermark(self, target: OffsetMetadata) -> None:
        """Show readers what lies below `target`, which is on disk."""
        raised = self.watermarks.with_high(target)
        if raised is not self.watermarks:
            self.watermarks = raised
            self.producers.on_high_watermark(raised.high_watermark)
            self.refresh_first_unstable()

    def raise_log_start(self, offset: int, reason: LogStartReason) -> None:
        """Stop showing what lies below `offset`; its bytes stay for now."""
        if offset > self.watermarks.log_start_offset:
            _LOG.info("%s starts at %d now: %s", self.topic_partition, offset, reason.value)
            self.watermarks = self.watermarks.with_log_start(offset)
            self.recovery_point = max(self.recovery_point, offset)
            self.epochs.truncate_from_start(offset)
            self.producers.on_log_start(offset)
            self.refresh_first_unstable()

    def refresh_first_unstable(self) -> None:
        """Take from the producer state where the earliest undecided transaction begins."""
        unstable = self.producers.first_unstable_offset
        marks = self.watermarks
        if unstable is not None and (
            unstable.is_offset_only or unstable.offset < marks.log_start_offset
        ):
            unstable = self._place_of(max(unstable.offset, marks.log_start_offset))
        self.watermarks = marks.with_first_unstable(unstable)

    def _place_of(self, offset: int) -> OffsetMetadata:
        """Return where the first batch that ends at or after `offset` lies; StorageOffline.

        Without the place if there is no file or memory to look it up: the next refresh tries again.
        """
        try:
            with self._context.health.trying:  # what can be read is still shown if it fails
                for segment in self.local.segments.overlapping(
                    offset, self.watermarks.end.offset + 1
                ):
                    found = locate_surely(segment, offset)
                    if found is not None:
                        return OffsetMetadata(offset, segment.base_offset, found.position)
        except (Overloaded, StorageFull):
            return OffsetMetadata(offset)
        # Not the end's own offset, as in Kafka: it would go back with the next append.
        return self.watermarks.end._replace(offset=offset)

    # -- segments ----------------------------------------------------------------------------

    def roll(self, base_offset: int) -> None:
        """Open a segment at `base_offset`, or at the log end, and note the producer state below it.

        Neither is synced: the flush that is scheduled does it. The recovery point stays below. On a
        full disk there may be a segment, or a segment without a snapshot; both can be tried again.
        Where compaction leaves gaps, the old segment is synced first: after a power cut a tail that
        it lost could not be told from a gap.
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
        """Remove the oldest segment; it lies below the log start: readers get an error, no gap."""
        oldest = self._oldest_to_remove()
        with self._context.health.writing:
            self.local.remove_segments((oldest,))
            self._retire_snapshot(oldest.base_offset)

    def begin_removal(self, end_offset: int) -> Segment:
        """Remove the oldest segment as the first of several; `local.retire` it after the last."""
        oldest = self._oldest_to_remove()
        with self._context.health.writing:
            self.local.begin_removal(oldest, end_offset)
            self._retire_snapshot(oldest.base_offset)
        return oldest

    def _oldest_to_remove(self) -> Segment:
        oldest, following = self.local.segments.snapshot.segments[:2]
        assert following.base_offset <= self.watermarks.log_start_offset
        return oldest

    def _retire_snapshot(self, offset: int) -> None:
        retired = self.producers.snapshot_for_deletion(offset)
        if retired is not None:
            self.local.remove_later(
                lambda: self._context.fs.remove(retired, missing_ok=True), f"snapshot {offset}"
            )

    def swap_in(self, output: Segment, sources: Sequence[Segment]) -> None:
        """Put a `.swap` segment in its sources' place; syncs and its name are the caller's."""
        self.local.segments.replace([output], sources)
        for source in sources:
            self.local.retire(source)
            if source.base_offset != output.base_offset:
                self._retire_snapshot(source.base_offset)

    def truncate_to(self, offset: int, plan: Truncation | None) -> None:
        """Take the log end back to `offset`, in a new epoch; the log end is above it.

        A batch that holds `offset` goes whole, yet the log end is `offset`, and if it was the first
        one of all the log starts there too. Without a plan all of the log lies above `offset`. The
        high watermark moves first. Kafka's `UnifiedLog.truncateTo`.
        """
        with self._truncating() as directory:
            marks = self.watermarks
            start = min(marks.log_start_offset, offset)
            high = min(marks.high, OffsetMetadata(offset), key=lambda place: place.offset)
            self.watermarks = Watermarks(start, high, marks.end, marks.first_unstable)
            if plan is None:
                self._restart_at(offset, directory)
            else:
                self._cut_to(offset, plan, directory)
            self.producers.on_high_watermark(self.watermarks.high_watermark)
            self.refresh_first_unstable()

    @contextmanager
    def _truncating(self) -> Iterator[OpenDirectory]:
        """Guard a block that takes the log end back, in a new epoch; readers wait for its end.

        Yields the log's directory, opened before: within the block a file that cannot be opened
        takes the data directory offline.

        What is read from here on is another log to every cache. The epoch is on disk before
        anything is cut, or after a crash other records would have the old one. StorageFull and
        Overloaded from writing it: nothing has happened.
        """
        with self._context.health.trying:
            self.epochs.assign(self.leader_epoch + 1, self.watermarks.log_end_offset)
            directory = self._context.fs.open_directory(self.local.directory)
        self.truncations += 1
        try:
            self.leader_epoch += 1
            with directory, self._context.health.writing:
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
        self.epochs.move_start(offset)  # after the sync: no record of an older epoch comes back
        self.producers.go_back_to(plan.producers)
        self._end_at(offset, NO_BATCH_CRC if plan.last is None else plan.last.crc)

    def _restart_at(self, offset: int, directory: OpenDirectory) -> None:
        self.local.restart_at(offset, directory)
        self.local.sync_end(directory)
        self.epochs.move_start(offset)
        self.epochs.truncate_from_start(offset)
        self.producers.truncate_fully(offset)
        self.producers.on_log_start(offset)
        self.watermarks = Watermarks.empty_at(offset, offset)
        self._end_at(offset, NO_BATCH_CRC)

    def _end_at(self, offset: int, last_crc: int) -> None:
        marks = self.watermarks.truncated(self.local.end_metadata(offset))
        self.watermarks = marks.with_log_start(self.local.segments.first_base_offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.tag = LogTag(self.leader_epoch, offset, last_crc)

    def stand_still(self, read: Callable[[int, int], Fetched]) -> CopySource:
        """Return all that a copy needs, while nobody can change the log; `read` reads it."""
        marks = self.watermarks
        return CopySource(
            marks.log_start_offset,
            marks.log_end_offset,
            self.epochs.entries,
            self.producers.encoded(),  # not a file: this disk may be left for want of space
            encode_windows(self.producers.recent()),
            read,
        )

    def go_on_from(self, before: LogState) -> None:
        """Take over what was asked of the log while it was in another directory."""
        self.keeps_order |= before.keeps_order
        self.truncations = before.truncations

    def rename_directory(self, directory: Path) -> None:
        """Give the directory another name, not yet durably."""
        self.local.rename_directory(directory)
        self.producers.move_to(directory)
        self.epochs.move_to(directory)

    def check_invariants(self) -> None:
        """Fail unless segments, watermarks and producer state agree."""
        segments = self.local.segments
        segments.check_invariants()
        marks = self.watermarks
        assert segments.first_base_offset <= marks.log_start_offset
        assert marks.end.segment_base_offset == segments.active.base_offset
        assert marks.end.position == segments.active.size_bytes
        assert self.recovery_point <= marks.log_end_offset
        self.producers.check_invariants()
