"""One log: the lock and the order of effects. Kafka's `UnifiedLog`, without its 138 methods.

`Log` has the verbs that move the ends of a log. Everything else is asked of one of its parts:
`reader` looks without the lock, `durability` commits and flushes, `maintenance` takes segments away
and moves the directory, `producers` tells who wrote. An append is analysed before the lock, then,
under it: placed, judged, written, applied.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from engine.config import LogConfig
from engine.errors import CorruptIndex, InvalidRequestValue
from engine.guard import Impatient
from engine.log.append.analyse import AnalysisLimits, analyse, with_append_time
from engine.log.context import LogContext
from engine.log.core import LogCore
from engine.log.durability import Durability
from engine.log.index_repair import rebuild_index_held
from engine.log.maintenance.maintenance import Maintenance
from engine.log.open.loader import Loader, LoadRequest
from engine.log.producers import LogProducers
from engine.log.read.fetch import deletion_target
from engine.log.read.reader import LogReader
from engine.log.results import Appended, LogTag, Recovery, RollResult
from engine.log.state import LogState
from engine.log.truncation import Truncation, plan_truncation
from engine.records.budget import DecodeBudget
from engine.segment.segments import close_all
from engine.state.verdict import NOTHING_TO_APPLY, Duplicate, Verdict
from engine.state.verification import VerificationGuard
from engine.state.watermarks import Watermarks
from engine.types import AppendOrigin, Buffer, LogStartReason, TopicPartition


class Log:
    """One partition: an append-only sequence of batches with four offsets. Thread-safe."""

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
        """Load a directory and repair whatever a crash left.

        After an unclean stop the high watermark stays at the log start until the first commit: what
        was found was scanned, not synced. Raises OSError or StorageError.
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
        """All four offsets, from one moment."""
        return self._core.state.watermarks

    @property
    def config(self) -> LogConfig:
        """The configuration in force; see `Maintenance.update_config`."""
        return self._core.state.local.config

    @property
    def directory(self) -> Path:
        """Where the log lies now."""
        return self._core.state.local.directory

    def append(
        self,
        data: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked: bool = False,
        expected_end_offset: int | None = None,
        expected_tag: LogTag | None = None,
        guard: VerificationGuard | None = None,
        nonblocking: bool = False,
        budget: DecodeBudget | None = None,
    ) -> Appended:
        """Put whole batches at the end of the log: all of them, or none.

        Afterwards they are in the page cache and above the high watermark, until a commit. Offsets
        and the leader epoch are stamped into `data`, in place if it is writable. `checked` says
        that our own builder made the batch; `guard` is what `producers.start_verification`
        returned. `budget` bounds what decoding all the batches may cost. Raises what `analyse`
        raises, ProducerError, PreconditionFailed if it is no repetition and the log end is not the
        expected one, UnexpectedAppendOffset, TopicNotFound if the topic was deleted, StorageError;
        WouldBlock, if it was `nonblocking`.
        """
        core = self._core
        context = core.context
        end_offset = core.state.watermarks.end.offset  # before the time
        now_ms = context.clock.now_ms()
        limits = AnalysisLimits(now_ms, context.config.max_decompressed_batch_bytes, budget)
        incoming = analyse(data, core.state.local.config, origin, limits, checked=checked)
        with self._lock_nonblocking if nonblocking else core.lock:
            context, state = core.context, core.state  # not before: the log may have moved
            core.ensure_open()
            core.ensure_kept()
            is_overtaken = state.watermarks.end.offset != end_offset
            if (
                is_overtaken
                and incoming.bears_append_time
                and origin is not AppendOrigin.REPLICATION
            ):
                now_ms = context.clock.now_ms()  # or times would go back within the log
                incoming = with_append_time(incoming, now_ms)
            context.health.ensure_taking(now_ms)
            if nonblocking:
                state.ensure_at_hand()
            is_conditional = expected_end_offset is not None or expected_tag is not None
            if is_conditional and not state.producers.is_repetition(incoming.headers):
                state.tag.ensure_expected(expected_end_offset, expected_tag)
            headers = state.place(incoming, origin)
            if state.is_roll_due(incoming, headers, now_ms):
                try:
                    state.roll_before(headers, nonblocking=nonblocking)
                finally:  # a roll that fails for want of space may leave a new segment
                    if not nonblocking:
                        self.durability.flush_soon()
            verdict: Verdict = NOTHING_TO_APPLY
            if incoming.needs_judgement:
                verdict = state.producers.judge(
                    headers,
                    origin,
                    start=state.watermarks.end,
                    markers=incoming.markers,
                    guard=guard,
                )
            if isinstance(verdict, Duplicate):
                return state.duplicate(verdict)
            appended = state.write(incoming, headers, verdict)
        count, size_bytes = appended.records_count, len(incoming.buffer)
        context.recorder.appended(self.topic_partition, records=count, size_bytes=size_bytes)
        return appended

    def roll(self, base_offset: int = 0) -> RollResult:
        """Seal the active segment, and go on there or at the log end; an empty one there stays."""
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

        Whole segments below it go with the next retention pass. Raises OffsetBeyondLogEnd above
        the high watermark. A crash before the next checkpoint may undo it, unless it is written
        down first, as `LogManager.delete_records` does.
        """
        core = self._core
        with core.lock:
            core.ensure_open()
            target = deletion_target(before_offset, core.state.watermarks)
            core.state.raise_log_start(target, reason)
            return core.state.watermarks.log_start_offset

    def truncate_to(self, offset: int, *, expected_tag: LogTag | None = None) -> int:
        """Take the log end back to `offset`, in a new leader epoch; return the log end.

        Afterwards it is durable: what was cut cannot come back after a power cut. Above the log end
        nothing happens. What stays is read, and its indexes are proven, before the log's lock is
        taken: readers and appends wait for the change alone, and if that reading fails nothing has
        changed. Raises InvalidRequestValue for a negative offset, PreconditionFailed if the log end
        is not the expected one, StoredDataCorrupt if what stays is damaged near its end.
        """
        core = self._core
        if offset < 0:
            raise InvalidRequestValue(f"a log cannot end at {offset}")
        self.durability.commit()  # so that no decided transaction is waiting for the high watermark
        with core.reshaping:
            state = core.state
            core.ensure_open()
            end_offset = state.watermarks.log_end_offset  # before the tag, which follows it
            state.tag.ensure_expected(None, expected_tag)
            if offset >= end_offset:
                return end_offset
            is_above_first = state.local.segments.first_base_offset <= offset
            plan = self._plan_truncation(offset) if is_above_first else None
            with core.lock:
                if plan is not None:  # a later truncation must remove it, if this one is refused
                    state.producers.note_snapshots_of(plan.producers)
                core.ensure_open()
                state.tag.ensure_expected(None, expected_tag)
                state.truncate_to(offset, plan)
        self.durability.try_to_flush()
        return core.state.watermarks.log_end_offset

    def _plan_truncation(self, offset: int) -> Truncation:
        """Return what a truncation does, with the indexes it relies on rebuilt if they are wrong.

        No segment may go away meanwhile: `reshaping` is held.
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
            return plan()
        except CorruptIndex as error:
            rebuild_index_held(core, error)
            return plan()
        except ValueError as error:
            raise core.closed() from error  # meanwhile

    def close(self, *, if_flushed: bool = False) -> bool:
        """Leave the directory as a clean stop leaves it: snapshot at the end, files trimmed.

        Does not move the recovery point: flush first. Nothing can be done with the log afterwards.
        With `if_flushed`, return False and leave it open if an append came after the last flush.
        """
        core = self._core
        with core.naming, core.lock:
            core.ensure_open()
            if if_flushed and self.durability.needs_flush:
                return False
            core.is_closed = True
            with core.context.health.trying:  # a start recovers what was not closed well
                producers = core.state.producers
                producers.take_snapshot(sync=True)
                producers.write_windows(producers.recent())
                core.state.epochs.flush()
                core.state.local.close()
        return True
