"""One log: the lock and the order of effects. Kafka's `UnifiedLog`, without its 138 methods.

An append is analysed before the lock, then, under it: placed, judged, written, applied. How that
becomes durable is in `engine.log.flushing`, what readers do, without the lock, in
`engine.log.reader`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from engine.config import LogConfig
from engine.errors import CorruptIndex, InvalidRequestValue
from engine.fs.port import OpenDirectory
from engine.guard import Impatient
from engine.log import retention
from engine.log.analysis import AnalysisLimits, analyse, with_append_time
from engine.log.compaction import Compaction
from engine.log.context import LogContext
from engine.log.flushing import DurableLog
from engine.log.loader import Loader, LoadRequest
from engine.log.read import ReadRequest, deletion_target
from engine.log.relocation import Standstill
from engine.log.results import Appended, LogTag, Recovery, RemovedSegment, RollResult
from engine.log.state import LogState
from engine.log.truncation import Truncation, plan_truncation
from engine.records.budget import DecodeBudget
from engine.segment.reindexing import Reindexing, base_offset_of_index
from engine.segment.segments import close_all
from engine.state.producer_entry import ProducerEntry
from engine.state.verdict import NOTHING_TO_APPLY, Duplicate, Verdict
from engine.state.verification import VerificationGuard
from engine.types import (
    AppendOrigin,
    Buffer,
    FetchIsolation,
    LogStartReason,
    TopicPartition,
)

_LOG = logging.getLogger(__name__)


class Log(DurableLog):
    """One partition: an append-only sequence of batches with four offsets. Thread-safe."""

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        topic_id: str,
        state: LogState,
        recovery: Recovery,
    ) -> None:
        super().__init__(context, topic_partition, topic_id, state)
        self.recovery = recovery
        self._lock_at_once = Impatient(self._lock)
        self._reshaping = threading.Lock()  # while held, no segment goes away; taken first

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

    # -- append ------------------------------------------------------------------------------

    def append(
        self,
        data: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked: bool = False,
        expected_end_offset: int | None = None,
        expected_tag: LogTag | None = None,
        guard: VerificationGuard | None = None,
        at_once: bool = False,
        budget: DecodeBudget | None = None,
    ) -> Appended:
        """Put whole batches at the end of the log: all of them, or none.

        Afterwards they are in the page cache and above the high watermark, until a commit. Offsets
        and the leader epoch are stamped into `data`, in place if it is writable. `checked` says
        that our own builder made the batch; `guard` is what `start_verification` returned. `budget`
        bounds what decoding all the batches may cost. Raises what `analyse` raises, ProducerError,
        PreconditionFailed if it is no repetition and the log end is another one,
        UnexpectedAppendOffset, StorageError; WouldWait, if it was `at_once`.
        """
        context = self._context
        end_offset = self._state.watermarks.end.offset  # before the time
        now_ms = context.clock.now_ms()
        limits = AnalysisLimits(now_ms, context.config.max_decompressed_batch_bytes, budget)
        incoming = analyse(data, self._state.local.config, origin, limits, checked=checked)
        with self._lock_at_once if at_once else self._lock:
            context, state = self._context, self._state  # not before: the log may have moved
            self._ensure_open()
            is_overtaken = state.watermarks.end.offset != end_offset
            if (
                is_overtaken
                and incoming.bears_append_time
                and origin is not AppendOrigin.REPLICATION
            ):
                now_ms = context.clock.now_ms()  # or times would go back within the log
                incoming = with_append_time(incoming, now_ms)
            context.health.ensure_taking(now_ms)
            if at_once:
                self._ensure_at_hand()
            is_conditional = expected_end_offset is not None or expected_tag is not None
            if is_conditional and not state.producers.is_repetition(incoming.headers):
                state.tag.ensure_expected(expected_end_offset, expected_tag)
            headers = state.place(incoming, origin)
            if state.is_roll_due(incoming, headers, now_ms):
                state.roll_before(headers, at_once=at_once)
                self._flush_soon()
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

    def start_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int
    ) -> VerificationGuard | None:
        """Return the guard for the first batch of a transaction; None if it is open already.

        Whoever decides that this log takes part asks before it decides, and appends afterwards: a
        marker that came in between has cleared the guard. `sequence` is that of the batch; none may
        overtake it. Kafka's `maybeStartTransactionVerification`.
        """
        with self._lock:
            self._ensure_open()
            return self._state.producers.start_verification(
                producer_id, sequence=sequence, producer_epoch=producer_epoch
            )

    # -- roll -------------------------------------------------------------------------------

    def roll(self, base_offset: int = 0) -> RollResult:
        """Seal the active segment, and go on there or at the log end; an empty one there stays."""
        with self._lock:
            state = self._state
            self._ensure_open()
            old = state.local.active.base_offset
            if state.local.active.size_bytes == 0 and base_offset <= old:
                return RollResult(False, old, old)
            state.ensure_room()
            state.roll(base_offset)
            new = state.local.active.base_offset
        self._flush_soon()
        return RollResult(True, old, new)

    def producers(self) -> tuple[ProducerEntry, ...]:
        """Return the producers that are not expired, by id."""
        with self._lock:
            return self._state.producers.active_producers(self._context.clock.now_ms())

    # -- retention and deletion --------------------------------------------------------------

    def run_retention(self, *, dry_run: bool = False) -> list[RemovedSegment]:
        """Remove, or with `dry_run` name, the segments that size, age or the log start give up.

        The first one that goes is given, durably, a name that says how far the removal reaches. A
        start after a power cut finishes it, whichever of the others still have their names then.
        """
        now_ms = self._context.clock.now_ms()
        with self._reshaping:
            with self._lock:
                context, state = self._context, self._state
                self._ensure_open()
                marks, segments = state.watermarks, state.local.segments.snapshot.segments
                with context.health.reading():
                    removed = retention.removable(segments, state.local.config, marks, now_ms)
                if dry_run or not removed:
                    return removed
                with context.health.appending():  # first, as without it nothing may be removed
                    directory = context.fs.open_directory(state.local.directory)
                if len(removed) == len(segments):
                    state.roll(marks.log_end_offset)
                end_offset = removed[-1].next_offset
                state.raise_log_start(end_offset, LogStartReason.SEGMENT_DELETION)
            with directory:
                self._sync_names(directory)  # or a power cut could leave no segment at all
                with self._lock:
                    self._ensure_open()
                    self._is_removing = True  # first: a checkpoint must keep the log start
                    first = state.begin_removal(end_offset)
                self._sync_names(directory)
                self._is_removing = False
                for _ in removed[1:]:
                    with self._lock:
                        self._ensure_open()
                        state.remove_oldest()
                if len(removed) > 1:
                    self._sync_names(directory)
                with self._lock, context.health.writing():
                    self._ensure_open()
                    state.local.retire(first)
        self._flush_soon()
        count, size_bytes = len(removed), sum(segment.size_bytes for segment in removed)
        context.recorder.segments_deleted(self.topic_partition, count=count, size_bytes=size_bytes)
        return removed

    def _sync_names(self, directory: OpenDirectory) -> None:
        with self._context.health.writing():
            directory.sync_all()

    def delete_records(
        self, before_offset: int, reason: LogStartReason = LogStartReason.CLIENT_RECORD_DELETION
    ) -> int:
        """Raise the log start to `before_offset`, -1 for the high watermark; return the log start.

        Whole segments below it go with the next retention pass. Raises OffsetBeyondLogEnd above
        the high watermark. A crash before the next checkpoint may undo it, unless it is written
        down first, as `LogManager.delete_records` does.
        """
        with self._lock:
            self._ensure_open()
            target = deletion_target(before_offset, self._state.watermarks)
            self._state.raise_log_start(target, reason)
            return self._state.watermarks.log_start_offset

    def truncate_to(self, offset: int, *, expected_tag: LogTag | None = None) -> int:
        """Take the log end back to `offset`, in a new leader epoch; return the log end.

        Afterwards it is durable: what was cut cannot come back after a power cut. Above the log end
        nothing happens. What stays is read, and its indexes are proven, before the log's lock is
        taken: readers and appends wait for the change alone, and if that reading fails nothing has
        changed. Raises InvalidRequestValue for a negative offset, PreconditionFailed if the log end
        is not the expected one, StoredDataCorrupt if what stays is damaged near its end.
        """
        if offset < 0:
            raise InvalidRequestValue(f"a log cannot end at {offset}")
        self.commit()  # so that no decided transaction is waiting for the high watermark
        with self._reshaping:
            state = self._state
            self._ensure_open()
            end_offset = state.watermarks.log_end_offset  # before the tag, which follows it
            state.tag.ensure_expected(None, expected_tag)
            if offset >= end_offset:
                return end_offset
            is_above_first = state.local.segments.first_base_offset <= offset
            plan = self._plan_truncation(offset) if is_above_first else None
            with self._lock:
                if plan is not None:  # a later truncation must remove it, if this one is refused
                    state.producers.note_snapshots_of(plan.producers)
                self._ensure_open()
                state.tag.ensure_expected(None, expected_tag)
                state.truncate_to(offset, plan)
        self._try_to_flush()
        return self._state.watermarks.log_end_offset

    def _plan_truncation(self, offset: int) -> Truncation:
        """Return what a truncation does, with the indexes it relies on rebuilt if they are wrong.

        No segment may go away meanwhile: `_reshaping` is held.
        """

        def plan() -> Truncation:
            return plan_truncation(
                self._context,
                state.local,
                state.producers,
                offset,
                log_start_offset=state.watermarks.log_start_offset,
            )

        state = self._state
        try:
            return plan()
        except CorruptIndex as error:
            self._rebuild_index(error)
            return plan()
        except ValueError as error:
            raise self._closed() from error  # meanwhile

    def compaction(self) -> Compaction:
        """Begin a round of cleaning; see `engine.log.compaction`."""
        with self._lock:
            context, state = self._context, self._state
            self._ensure_open()
        return Compaction(
            context,
            state,
            lock=self._lock,
            naming=self._naming,
            reshaping=self._reshaping,
        )

    def _mend(self, error: CorruptIndex) -> None:
        """Make the offset and time index of one segment anew; those who look up meanwhile wait.

        Raises StoredDataCorrupt where the log file itself is damaged, and `error` for an index of
        transactions: that is rebuilt when the log is opened.
        """
        with self._reshaping:
            self._rebuild_index(error)

    def _rebuild_index(self, error: CorruptIndex) -> None:
        """As `_mend`, with `_reshaping` held. Overloaded and StorageFull: it can be tried again."""
        state = self._state
        segment = state.local.segments.get(base_offset_of_index(error))
        if segment is None or segment.proofs.is_index_trusted:
            return  # another thread was faster
        _LOG.warning("%s: rebuilding its indexes: %s", segment, error)
        work = Reindexing(segment)
        try:
            work.walk()
        except ValueError:
            self._ensure_open()  # its files were closed meanwhile
            raise
        health = self._context.health
        with self._lock, health.trying():  # an index that lacks entries leads nowhere wrong
            self._ensure_open()
            segment.resting.forbid()
            work.walk()
            work.install(is_active=segment is state.local.active)
        with self._naming:
            self._ensure_open()
            with health.syncing():  # below the recovery point no flush does it
                segment.indexes.sync()
            with self._lock:
                state.local.rest_sealed([segment])

    def expire_producers(self) -> int:
        """Forget idle producers; return how many."""
        with self._lock:
            return self._state.producers.expire(self._context.clock.now_ms())

    def keep_order(self) -> None:
        """From now on have a segment on disk before the next exists: before one is compacted."""
        with self._lock:
            self._state.keeps_order = True
        self.commit()

    def update_config(self, config: LogConfig) -> None:
        """Work with another configuration from now on."""
        with self._lock:
            self._state.local.config = config

    # -- end of life -------------------------------------------------------------------------

    def close_handles(self) -> None:
        """Let go of the files without writing anything."""
        with self._naming, self._lock:
            self._is_closed = True
            self._state.local.close_handles()

    def rename_directory(self, directory: Path) -> None:
        """Give the log's directory another name, durable once the parent is synced; go on there."""
        with self._reshaping, self._naming, self._lock, self._context.health.writing():
            self._state.rename_directory(directory)

    def relocate(
        self,
        retired: Path,
        complete: Callable[[Standstill], Log],
        give_name: Callable[[Log], None],
    ) -> Callable[[], None]:
        """Go on in another data directory; whoever holds the log notices nothing but a pause.

        Nothing changes the log while `complete` completes the copy there and opens it. Then its own
        directory is renamed to `retired`, and `give_name` makes that durable and names that of the
        copy. Returns what lets go of the old files, which readers may still be in. If `give_name`
        fails, the copy is the log at the next start; until then this one takes no more writes.
        StorageError.
        """
        with self._reshaping, self._syncing, self._naming, self._lock:
            self._ensure_open()
            old, context = self._state, self._context
            # Not `self.read`, which would rebuild an index, under locks that are held here.
            still = old.stand_still(
                lambda offset, max_bytes: self._fetch(
                    ReadRequest(offset, max_bytes, FetchIsolation.LOG_END)
                )
            )
            there = complete(still)
            with context.health.writing():
                old.rename_directory(retired)
            try:
                give_name(there)
            except BaseException:
                self._is_closed = True
                raise
            self._context, self._state = there._context, there._state  # noqa: SLF001 - it is a log
            self._state.go_on_from(old)
        return old.local.close_handles

    def check_invariants(self) -> None:
        """Fail unless segments, watermarks and producer state agree."""
        with self._lock:
            self._state.check_invariants()
