"""One log, what can be done to it, and the dumb model to which the same is done.

What fails half-way leaves a doubt: what was being appended may be there after the next start, or
not; `reopen` finds out, and fails unless what it finds is one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from engine.cleaner.cleaner import CleaningReport
from engine.errors import (
    InvalidTransactionState,
    Overloaded,
    ProducerFenced,
    SequenceGap,
    StorageFull,
)
from engine.log.log import Log
from engine.log.results import Appended, RemovalReason, RemovedSegment
from engine.records.batch import stamp_offset_and_epoch
from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin, FetchIsolation
from tests.support import log_checks
from tests.support.compacted_model import adopt_cleaned
from tests.support.log_model import LogModel
from tests.support.logs import batches_in
from tests.support.time import ManualClock

KEYS = (b"ada", b"bob", b"cy", b"dot")
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (3, 4, 5)
LOOK_UP_STEP = 11


class DrivenLog:
    """A log and its model; `log` is replaced at each start."""

    def __init__(
        self,
        log: Log,
        clock: ManualClock,
        numbers: Iterator[int],
        append: Callable[..., Appended] = Log.append,
    ) -> None:
        """`append` is how batches get into a log: a function of it and what `Log.append` takes."""
        self.log = log
        self._append_to = append
        self.clock = clock
        self.numbers = numbers
        self.model = LogModel(leader_epoch=log.reader.leader_epoch)
        self.was_compacted = log.config.is_compacted
        self.saved_log_start = 0
        """The log start that a start is sure to know of."""
        self._doubtful: list[tuple[bytes, bool | None]] = []
        """Batches that were being appended, and of a marker whether it aborts."""
        self._doubtful_end: int | None = None
        self._doubtful_start = 0
        """To where the log was being cut."""

    # -- writing -----------------------------------------------------------------------------

    def build(self, count: int, **options: Any) -> bytearray:
        number = next(self.numbers)
        now_ms = self.clock.now_ms()
        records = []
        for index in range(count):
            value = b"%07d" % number * (1 + index % 3)
            at_ms = now_ms + number * 37 % 2_000 - index % 5 * 400
            key = KEYS[(number + index) % len(KEYS)]
            records.append((at_ms, key, None if (number + index) % 6 == 5 else value, ()))
        return build_batch(records, **options)

    def produce(self, producer_id: int, count: int, **options: Any) -> bytearray:
        epoch, sequence = self.model.next_sequence(producer_id)
        defaults = {
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "is_transactional": producer_id in TRANSACTIONAL,
        }
        return self.build(count, producer_id=producer_id, **{**defaults, **options})

    def append(self, count: int, *, is_checked: bool = False, **options: Any) -> None:
        self.write(self.build(count, **options), checked=is_checked)

    def append_several(self, counts: list[int]) -> None:
        self.write(bytearray(b"".join(self.build(count) for count in counts)))

    def append_of_producer(self, producer_id: int, *counts: int) -> None:
        """Append a batch for each count, all of them at once."""
        if not self.model.may_be_refused(producer_id):
            _, sequence = self.model.next_sequence(producer_id)
            batches = []
            for count in counts:
                batches.append(self.produce(producer_id, count, base_sequence=sequence))
                sequence += count
            self.write(bytearray(b"".join(batches)))

    def end_transaction(self, producer_id: int, *, commits: bool, fences: bool) -> None:
        if not self.model.is_in_transaction(producer_id):
            return
        epoch, _ = self.model.next_sequence(producer_id)
        data = build_end_marker(
            ControlType.COMMIT if commits else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=epoch + (fences and not commits),
            coordinator_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        self.write(data, is_abort=not commits)

    def begin_epoch(self, producer_id: int, count: int) -> None:
        epoch, _ = self.model.next_sequence(producer_id)
        if not self.model.is_in_transaction(producer_id):
            options = {"producer_epoch": epoch + 1, "base_sequence": 0}
            self.write(self.produce(producer_id, count, **options))

    def retry(self, producer_id: int, back: int, *, count: int = 1) -> None:
        """Send batches again that are there: nothing is appended, and the answer is the old one."""
        sent = self.model.remembered.get(producer_id, [])
        repeated = [one.header for one in sent[-back:][:count]]
        is_one_piece = all(one.next_offset == two.base_offset for one, two in pairwise(repeated))
        if len(sent) < back or not is_one_piece:
            return
        data = b"".join(
            self.produce(
                producer_id,
                header.last_offset_delta + 1,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
            for header in repeated
        )
        answer = self._append_to(self.log, bytearray(data))
        assert answer.is_duplicate, "a retry was appended a second time"
        places = (repeated[0].base_offset, repeated[-1].last_offset)
        assert (answer.base_offset, answer.last_offset) == places

    def retry_all(self) -> None:
        """Send again whatever must be recognised, one by one and as far as it is in one piece."""
        for producer_id, sent in self.model.remembered.items():
            for back in range(1, len(sent) + 1):
                for count in {1, back}:
                    self.retry(producer_id, back, count=count)

    def be_refused(self, producer_id: int, ahead: int) -> None:
        """A gap, an old epoch and a plain batch within a transaction change nothing."""
        if producer_id not in self.model.remembered:
            return
        epoch, sequence = self.model.next_sequence(producer_id)
        with pytest.raises(SequenceGap):
            self.log.append(self.produce(producer_id, 1, base_sequence=sequence + ahead))
        if epoch:
            with pytest.raises(ProducerFenced):
                self.log.append(self.produce(producer_id, 1, producer_epoch=epoch - 1))
        if self.model.is_in_transaction(producer_id):
            with pytest.raises(InvalidTransactionState):
                self.log.append(self.produce(producer_id, 1, is_transactional=False))

    def write(
        self,
        data: bytearray,
        *,
        is_abort: bool | None = None,
        aborts: Sequence[bool | None] = (),
        **options: Any,
    ) -> None:
        """Append batches; `aborts` says of each what `is_abort` says of one."""
        origin = AppendOrigin.CLIENT if is_abort is None else AppendOrigin.COORDINATOR
        aborts = aborts or [is_abort for _ in _split(data)]
        try:
            appended = self._append_to(self.log, data, **{"origin": origin, **options})
            assert not appended.is_duplicate
        except BaseException:
            self._doubtful = list(zip(map(bytes, _split(data)), aborts, strict=True))
            if self.log.watermarks.log_end_offset > self.model.end:
                self._adopt_doubtful(self.log.watermarks.log_end_offset)
            raise
        for batch, is_its_abort in zip(_split(data), aborts, strict=True):
            self._note(batch, is_its_abort)
        self._doubtful = []
        assert self.log.watermarks.log_end_offset == self.model.end

    def _note(self, data: bytes, is_abort: bool | None) -> None:  # noqa: FBT001 - None is a third
        if is_abort is None:
            self.model.append(data)
        else:
            self.model.append_marker(data, is_abort=is_abort)

    # -- maintenance -------------------------------------------------------------------------

    def commit(self) -> None:
        end = self.model.end
        assert self.log.durability.commit() >= end
        self.see_commits()

    def flush(self) -> None:
        end = self.model.end
        try:
            assert self.log.durability.flush() >= end
        finally:
            self.see_commits()  # it commits first, and may find no file for the rest

    def see_commits(self) -> None:
        """Take over how far readers see by now: never less than before, never beyond the end."""
        high_watermark = self.log.watermarks.high_watermark
        assert self.model.high_watermark <= high_watermark <= self.model.end
        self.model.show_up_to(high_watermark)

    def roll(self) -> None:
        rolled = self.log.roll()
        assert rolled.new_base_offset == self.model.end or not rolled.rolled

    def run_retention(self) -> None:
        before, start = self.log.reader.listing().segments, self.model.log_start
        for segment in self.log.maintenance.run_retention(dry_run=True):
            self._check_removal(segment)
        try:
            removed = self.log.maintenance.run_retention()
        except (StorageFull, Overloaded):  # the roll that keeps the log's end comes first of all
            assert self.log.watermarks.log_start_offset == start
            self.model.log_start = start
            raise
        assert [one.base_offset for one in removed] == [
            one.base_offset for one in before[: len(removed)]
        ]
        assert self.log.maintenance.run_retention(dry_run=True) == []

    def may_have_removed(self) -> None:
        """Take what retention was about to remove for removed or not: its directory is offline."""
        self._doubtful_start = max(self._doubtful_start, self.log.watermarks.log_start_offset)

    def _check_removal(self, segment: RemovedSegment) -> None:
        """It is committed, and old, or below the log start anyway."""
        model = self.model
        assert segment.next_offset <= model.high_watermark
        if segment.reason is RemovalReason.LOG_START:
            assert segment.next_offset <= model.log_start
            return
        if segment.reason is RemovalReason.TIME:
            oldest_ms = self.clock.now_ms() - self.log.config.retention_ms
            start = max(segment.base_offset, model.log_start)  # below it compaction took everything
            for batch in model.due(start, segment.next_offset):
                assert all(timestamp < oldest_ms for _, timestamp, _, _ in batch.records)
        model.log_start = max(model.log_start, segment.next_offset)

    def see_removals(self) -> None:
        """Take over what retention took away meanwhile: it was old, or there was a bound."""
        model, config = self.model, self.log.config
        start = self.log.watermarks.log_start_offset
        if start == model.log_start:
            return
        assert model.log_start < start <= model.high_watermark
        assert config.deletes
        oldest_ms = self.clock.now_ms() - config.retention_ms
        removed = [one for batch in model.due(model.log_start, start) for one in batch.records]
        later_keys = {one[2] for batch in model.due(start, model.end) for one in batch.records}
        # Compaction may have emptied the segment before retention removed it.
        replaced_keys = later_keys if config.is_compacted else set()
        is_due = all(one[1] < oldest_ms or one[2] in replaced_keys for one in removed)
        assert is_due or config.retention_bytes >= 0
        model.log_start = start

    def delete_records(self, before: int, delete: Callable[[Log, int], int]) -> None:
        """Have records deleted, durably: a crash before the answer may come first or second."""
        self._doubtful_start = before
        assert delete(self.log, before) == before
        self.model.log_start = self.saved_log_start = before

    def will_be_cut(self, offset: int) -> None:
        """Be prepared for a crash during a truncation: whatever was committed above may go.

        The batch that holds the offset goes whole; of a gap below it nothing need stay.
        """
        model = self.model
        if offset < model.end:
            kept = (one.next_offset for one in model.batches if one.next_offset <= offset)
            self._doubtful_end = max(kept, default=min(offset, model.log_start))

    def was_cut(self, offset: int, end: int) -> None:
        """Do to the model what a truncation through the manager did."""
        model, before = self.model, self.model.log_start
        model.commit()
        model.truncate_to(offset)
        assert end == model.end
        if not model.due(model.log_start, model.end):
            model.log_start = self.log.watermarks.log_start_offset  # it may start at its end
            assert model.log_start in {before, offset, model.end}
        self.saved_log_start = min(self.saved_log_start, model.log_start)
        self._doubtful_end = None

    def may_have_been_cut(self, offset: int) -> None:
        """Find out what a truncation did that was refused for want of space, or came after it."""
        end = self.log.watermarks.log_end_offset
        if end != self.model.end:
            self.was_cut(offset, end)
        else:
            self.see_commits()
            self._doubtful_end = None

    def was_compacted_as(self, report: CleaningReport) -> None:
        """Take over a cleaning as far as it was possible."""
        self.see_commits()
        bound = min(
            self.log.watermarks.last_stable_offset, self.log.reader.segments[-1].base_offset
        )
        assert report.end_offset <= bound
        self.adopt_cleaned(report)

    def adopt_cleaned(self, report: CleaningReport | None = None, **options: Any) -> None:
        """Take over what compaction left; without a report one that was interrupted, or none."""
        retention_ms = self.log.config.delete_retention_ms
        adopt_cleaned(self.model, self.log, self.clock.now_ms(), retention_ms, report, **options)

    def was_moved(self, end: int) -> None:
        """Take over what a move does: all below `end` is committed, and a snapshot was read."""
        self.see_commits()
        assert self.model.high_watermark >= end
        self.saved_log_start = self.model.log_start
        self.model.forget_producers(keeps_windows=True)

    @property
    def is_busy(self) -> bool:
        """Whether a lock of the log is held, so that no other work could run on the same thread."""
        log = self.log
        opening = [one.indexes._opening for one in log._core.state.local.segments]  # noqa: SLF001 - see above
        locks = (log._core.lock, log._core.naming, log._core.reshaping, *opening)  # noqa: SLF001 - see above
        return any(lock.locked() for lock in locks)

    @property
    def is_syncing(self) -> bool:
        """Whether a commit is under way, for which another one would wait."""
        return self.log._core.syncing.locked()  # noqa: SLF001 - as above

    # -- restarts ----------------------------------------------------------------------------

    def least_end(self, *, is_kill: bool) -> int:
        """Where the log ends at least after whatever happens now.

        All that was committed stays and, if only the process dies, all that was appended.
        """
        end = self.model.end if is_kill else self.model.high_watermark
        return end if self._doubtful_end is None else min(end, self._doubtful_end)

    def was_stopped(self) -> None:
        """Note a clean stop: all is committed and written down."""
        self.model.commit()
        self.saved_log_start = self.model.log_start

    def reopen(self, log: Log, *, least: int, has_lost: bool, starts: int = 1) -> None:
        """Go on with what a start found: a prefix of the model that holds all that it must."""
        self.log = log
        model = self.model
        marks = log.watermarks
        end = marks.log_end_offset
        self._adopt_doubtful(end)
        if self._doubtful_end is not None:
            self.saved_log_start = min(self.saved_log_start, self._doubtful_end)
        assert least <= marks.high_watermark == end <= model.end, (least, marks, model.end)
        assert has_lost or log.durability.recovery.damage is None, log.durability.recovery.damage
        assert "ends before what" not in str(log.durability.recovery.damage), (
            "that was on the disk for sure"
        )
        if end < model.end:
            model.cut_at(end)
            model.end = end
        # A truncation that left nothing has the log begin where it ends.
        is_cut_away = self._doubtful_end is not None and marks.log_start_offset == end
        highest = end if is_cut_away else max(model.log_start, self._doubtful_start)
        starts_at = (min(self.saved_log_start, end), marks.log_start_offset, highest)
        assert starts_at[0] <= starts_at[1] <= starts_at[2], starts_at
        model.log_start = self.saved_log_start = marks.log_start_offset
        model.high_watermark = min(model.high_watermark, end)
        may_rise = has_lost * (starts + (self._doubtful_end is not None))
        assert model.leader_epoch <= log.reader.leader_epoch <= model.leader_epoch + may_rise
        model.leader_epoch = log.reader.leader_epoch
        if has_lost:
            surely = least if self.was_compacted else end
            self.adopt_cleaned(surely_there_below=surely)
        model.show_up_to(end)
        model.forget_producers(keeps_windows=True)
        self._doubtful, self._doubtful_end, self._doubtful_start = [], None, 0

    def _adopt_doubtful(self, end: int) -> None:
        for data, is_abort in self._doubtful:
            if end <= self.model.end:
                break
            fetched = self.log.reader.read(
                self.model.end, max_bytes=1, isolation=FetchIsolation.LOG_END
            )
            assert fetched is not None
            found = bytes(fetched.data)
            stamped = bytearray(data)  # as it was sent
            stamp_offset_and_epoch(stamped, 0, self.model.end, self.model.leader_epoch)
            assert found == stamped, "there is a batch that nobody appended"
            self._note(found, is_abort)
        self._doubtful = []

    # -- reading -----------------------------------------------------------------------------

    def check(self, first: int, *, step: int = LOOK_UP_STEP) -> None:
        """Compare all bytes of each kind of reader, and every `step`th look-up."""
        log_checks.check_marks(self.log, self.model)
        log_checks.check_whole(self.log, self.model)
        log_checks.check_look_ups(self.log, self.model, step=step, first=first % step)

    def facts(self) -> Mapping[str, object]:
        """What a printed history says of the log."""
        marks = self.log.watermarks
        return {
            "start": marks.log_start_offset,
            "high": marks.high_watermark,
            "end": marks.log_end_offset,
            "segments": self.log.reader.segments_count,
        }


def _split(data: bytearray) -> list[bytes]:
    return [bytes(batch.buffer) for batch in batches_in(data)]
