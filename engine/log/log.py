"""One log: its verbs, and the order of their effects under the lock. Kafka's `UnifiedLog`.

`Log` has the verbs that move the ends of a log. Its parts have the rest: `reader` reads without the
lock, `durability` commits and flushes, `maintenance` removes segments and moves the directory,
`producers` knows the producers. An append is analysed before the lock; under the lock it gets its
offsets, is checked against producer state, written, and applied to that state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from engine.config import LogConfig
from engine.errors import InvalidRequestValue, WouldBlock
from engine.log.analyse import AnalysisLimits, analyse, with_append_time
from engine.log.durability import Durability
from engine.log.files import LogContext
from engine.log.index_repair import mending
from engine.log.maintenance import Maintenance
from engine.log.open.loader import Loader, LoadRequest
from engine.log.read.fetch import deletion_target
from engine.log.read.reader import LogReader
from engine.log.results import Appended, LogTag, Recovery, RollResult
from engine.log.state import Impatient, LogCore, LogState
from engine.log.truncation import Truncation, plan_truncation
from engine.records.batch import OFFSET_LENGTH_EPOCH
from engine.records.budget import DecodeBudget
from engine.records.header import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader
from engine.segment.segments import close_all
from engine.state.producer_entry import Idle, ProducerEntry
from engine.state.producer_verdict import NOTHING_TO_APPLY, Duplicate, Verdict
from engine.state.watermarks import Watermarks
from engine.types import (
    INT64_MAX,
    NO_PRODUCER_ID,
    AppendOrigin,
    Buffer,
    LogStartReason,
    OffsetMetadata,
    TopicPartition,
)


class LogProducers:
    """The log's producer state. Thread-safe."""

    def __init__(self, core: LogCore) -> None:
        self._core = core

    @property
    def count(self) -> int:
        """The number of producers in the state, expired ones included."""
        return len(self._core.state.producers)

    @property
    def highest_id(self) -> int:
        """The greatest producer id that the state has seen; -1 if none."""
        return self._core.state.producers.highest_producer_id

    def active(self) -> tuple[ProducerEntry, ...]:
        """Return the producers that are not expired, by id."""
        with self._core.lock:
            core = self._core
            return core.state.producers.active_producers(core.context.clock.now_ms())

    def expire(self) -> int:
        """Remove expired producers; return how many."""
        with self._core.lock:
            core = self._core
            return core.state.producers.expire(core.context.clock.now_ms())

    def forget_idle(self, last: Idle) -> None:
        """Remove the producers that have been idle for at least as long as `last`."""
        with self._core.lock:
            self._core.state.producers.forget_idle(last)


class Log:
    """One partition: an append-only sequence of batches, with four watermarks. Thread-safe."""

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        topic_id: str,
        state: LogState,
        recovery: Recovery,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.topic_id: Final = topic_id
        self._core = core = LogCore(context, topic_partition, topic_id, state)
        self._lock_nonblocking = Impatient(core.lock)
        self.reader: Final = LogReader(core)
        self.producers: Final = LogProducers(core)
        self.durability: Final = Durability(core, recovery)
        self.maintenance: Final = Maintenance(core, self.reader, self.durability)

    @classmethod
    def open(
        cls,
        context: LogContext,
        topic_partition: TopicPartition,
        topic_id: str,
        request: LoadRequest,
    ) -> Log:
        """Load a partition directory and repair what a crash left.

        After an unclean stop the high watermark stays at the log start until the first commit,
        because recovery scans and does not sync. Raises OSError or StorageError.
        """
        loaded = Loader(context, request).load()
        try:
            state = LogState(context, topic_partition, request, loaded)
        except BaseException:
            close_all(loaded.segments)
            raise
        return cls(context, topic_partition, topic_id, state, loaded.recovery)

    @property
    def watermarks(self) -> Watermarks:
        """All four offsets, as of one moment."""
        return self._core.state.watermarks

    @property
    def config(self) -> LogConfig:
        """The configuration in force; see `Maintenance.update_config`."""
        return self._core.state.local.config

    @property
    def directory(self) -> Path:
        """The log's present directory."""
        return self._core.state.local.directory

    def append(
        self,
        data: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked: bool = False,
        expected_end_offset: int | None = None,
        expected_tag: LogTag | None = None,
        nonblocking: bool = False,
        budget: DecodeBudget | None = None,
    ) -> Appended:
        """Append whole batches: all of them, or none.

        Until a commit they are only in the page cache, above the high watermark. Offsets and the
        leader epoch are stamped into `data`, in place if it is writable. `checked` means that our
        own builder made the batch; `budget` bounds the cost of decoding. Raises what `analyse`
        raises, ProducerError, PreconditionFailed if the log end is not the expected one and the
        append is not a retry, UnexpectedAppendOffset, TopicNotFound, StorageError, and, if
        `nonblocking`, WouldBlock.
        """
        core = self._core
        is_conditional = expected_end_offset is not None or expected_tag is not None
        end_offset = core.state.watermarks.end.offset  # before the clock is read
        now_ms = core.context.clock.now_ms()
        is_plain = checked and origin is AppendOrigin.CLIENT and not is_conditional
        if is_plain and type(data) is bytearray:  # which can be stamped
            appended = self._append_plain(data, now_ms, nonblocking=nonblocking)
            if appended is not None:
                return appended
        limits = AnalysisLimits(now_ms, core.context.config.max_decompressed_batch_bytes, budget)
        incoming = analyse(data, core.state.local.config, origin, limits, checked=checked)
        with self._lock_nonblocking if nonblocking else core.lock:
            context, state = core.context, core.state  # under the lock: moves replace them
            core.ensure_open()
            core.ensure_kept()
            is_overtaken = state.watermarks.end.offset != end_offset
            if (
                is_overtaken
                and incoming.bears_append_time
                and origin is not AppendOrigin.REPLICATION
            ):
                now_ms = context.clock.now_ms()  # again, or times could go back within the log
                incoming = with_append_time(incoming, now_ms)
            context.health.ensure_taking(now_ms)
            if nonblocking and not state.is_at_hand:
                raise WouldBlock
            if is_conditional and not state.producers.is_repetition(incoming.headers):
                state.tag.ensure_expected(expected_end_offset, expected_tag)
            headers = state.place(incoming, origin)
            last_offset, size_bytes = headers[-1].last_offset, len(incoming.buffer)
            if state.is_roll_due(size_bytes, incoming.max_timestamp, last_offset, now_ms):
                try:
                    state.roll_before(headers, nonblocking=nonblocking)
                finally:  # a roll that fails for lack of space may leave a new segment
                    if not nonblocking:
                        self.durability.flush_soon()
            verdict: Verdict = NOTHING_TO_APPLY
            if incoming.needs_judgement:
                verdict = state.producers.judge(
                    headers,
                    origin,
                    start=state.watermarks.end,
                    markers=incoming.markers,
                )
            if isinstance(verdict, Duplicate):
                return state.duplicate(verdict)
            appended = state.write(incoming, headers, verdict)
        context.recorder.appended(
            self.topic_partition, records=appended.records_count, size_bytes=size_bytes
        )
        return appended

    def _append_plain(self, batch: bytearray, now_ms: int, *, nonblocking: bool) -> Appended | None:
        """Append one batch that needs no decision; None, with nothing changed, for any other.

        An uncompressed batch of our own builder, without a producer, to an active segment that is
        open and has room: a third of the steps of the general way, with the same result. What is
        refused is left to the general way, which explains it.
        """
        core, size_bytes = self._core, len(batch)
        if size_bytes < HEADER_BYTES:
            return None
        fields = HEADER.unpack_from(batch)
        _, length, _, _, crc, attributes, last_offset_delta, _, timestamp, producer_id, *_ = fields
        if attributes or producer_id != NO_PRODUCER_ID or length + LOG_OVERHEAD_BYTES != size_bytes:
            return None  # compressed, in a transaction, to be judged by its sequence, or several
        with self._lock_nonblocking if nonblocking else core.lock:
            state, health = core.state, core.context.health  # under the lock: moves replace them
            if core.is_closed or core.is_deleted:
                return None
            health.ensure_taking(now_ms)
            local, marks = state.local, state.watermarks
            config, segment = local.config, local.segments.active
            first_offset = marks.end.offset
            last_offset = first_offset + last_offset_delta
            if (
                not config.takes_any_record
                or config.stored_codec is not None
                or size_bytes > config.max_message_bytes
                or timestamp - now_ms > config.message_timestamp_after_max_ms
                or last_offset >= INT64_MAX
            ):
                return None
            if not segment.has_room(size_bytes, timestamp, last_offset, config):
                if not state.is_ready_for(size_bytes, timestamp, last_offset, now_ms):
                    return None
                segment.lease_room(config)
            epoch = state.leader_epoch
            OFFSET_LENGTH_EPOCH.pack_into(batch, 0, first_offset, length, epoch)
            try:
                position = segment.append(batch, last_offset, timestamp, last_offset)
            except BaseException:
                OFFSET_LENGTH_EPOCH.pack_into(batch, 0, *fields[:3])  # refused, so unchanged
                with health.appending:
                    raise
            next_offset = last_offset + 1
            end = OffsetMetadata(next_offset, segment.base_offset, position + size_bytes)
            state.watermarks = marks = marks.with_end(end)
            state.tag = tag = LogTag(epoch, next_offset, crc)
            state.producers.map_end_offset = next_offset
        count = last_offset_delta + 1
        core.context.recorder.appended(self.topic_partition, records=count, size_bytes=size_bytes)
        header = BatchHeader(first_offset, length, epoch, *fields[3:])
        return Appended(first_offset, last_offset, count, timestamp, False, marks, tag, (header,))

    def roll(self, base_offset: int = 0) -> RollResult:
        """Seal the active segment, unless it is empty, and open one at `base_offset` or later."""
        core = self._core
        with core.lock:
            state = core.state
            core.ensure_open()
            old = state.local.active.base_offset
            if state.local.active.size_bytes == 0 and base_offset <= old:
                return RollResult(False, old, old)
            state.ensure_room()
            try:
                state.roll(base_offset)
            finally:  # as in an append
                self.durability.flush_soon()
            new = state.local.active.base_offset
        return RollResult(True, old, new)

    def delete_records(
        self, before_offset: int, reason: LogStartReason = LogStartReason.CLIENT_RECORD_DELETION
    ) -> int:
        """Raise the log start to `before_offset`, -1 for the high watermark; return the log start.

        The next retention pass removes whole segments below it. Raises OffsetBeyondLogEnd above the
        high watermark. A crash before the next checkpoint may undo it; `LogManager.delete_records`
        writes the checkpoint first.
        """
        core = self._core
        with core.lock:
            core.ensure_open()
            target = deletion_target(before_offset, core.state.watermarks)
            core.state.raise_log_start(target, reason)
            return core.state.watermarks.log_start_offset

    def truncate_to(self, offset: int, *, expected_tag: LogTag | None = None) -> int:
        """Truncate the log to `offset`, in a new leader epoch; return the log end.

        On return it is durable: a power cut cannot restore what was cut. Does nothing above the log
        end. The remaining end of the log is read, and its indexes are verified, before the lock is
        taken: so readers and appends only wait for the change itself, and if that reading fails,
        nothing has changed. Raises InvalidRequestValue for a negative offset and for one that only
        the archive has, PreconditionFailed if the log end is not the expected one,
        StoredDataCorrupt if the remaining log is damaged near its end.
        """
        core = self._core
        if offset < 0:
            raise InvalidRequestValue(f"cannot truncate a log to offset {offset}")
        self.durability.commit()  # so that all decided transactions are below the high watermark
        with core.reshaping:
            state = core.state
            core.ensure_open()
            end_offset = state.watermarks.log_end_offset  # before the tag
            state.tag.ensure_expected(None, expected_tag)
            if offset >= end_offset:
                return end_offset
            first_offset = state.local.segments.first_base_offset
            is_above_first = first_offset <= offset
            if not is_above_first and state.watermarks.log_start_offset < first_offset:
                raise InvalidRequestValue(
                    f"the offsets below {first_offset} are in the archive only, and are not "
                    f"truncated: truncate to {first_offset} or above, or restore the log to an "
                    "earlier time",
                    local_log_start_offset=first_offset,
                )
            plan = self._plan_truncation(offset) if is_above_first else None
            with core.lock:
                if plan is not None:  # even if this one is refused, a later one must remove it
                    state.producers.note_snapshots_of(plan.producers)
                core.ensure_open()
                state.tag.ensure_expected(None, expected_tag)
                state.truncate_to(offset, plan)
        self.durability.try_to_flush()
        return core.state.watermarks.log_end_offset

    def _plan_truncation(self, offset: int) -> Truncation:
        """Plan a truncation; rebuild the indexes that it relies on if they are wrong.

        `reshaping` is held, so that no segment is removed meanwhile.
        """
        core = self._core

        def plan() -> Truncation:
            return plan_truncation(
                core.context,
                state.local,
                state.producers,
                offset,
                log_start_offset=state.watermarks.log_start_offset,
            )

        state = core.state
        try:
            return mending(core, plan, is_held=True)
        except ValueError as error:
            raise core.closed() from error  # meanwhile

    def close(self, *, if_flushed: bool = False) -> bool:
        """Write a producer snapshot, trim and close the files, as on a clean stop.

        The recovery point does not move: flush first. The log cannot be used afterwards. With
        `if_flushed`, return False and stay open if there was an append after the last flush.
        """
        core = self._core
        with core.naming, core.lock:
            core.ensure_open()
            if if_flushed and self.durability.needs_flush:
                return False
            core.is_closed = True
            with core.context.health.trying:  # the next start recovers what was not closed
                producers = core.state.producers
                producers.take_snapshot(sync=True)
                producers.write_windows(producers.recent())
                core.state.epochs.flush()
                core.state.local.close()
        return True
