"""A log on a forgetful disk, driven by rules, against a list that forgets nothing.

After each step every reader's bytes, some of the look-ups and the invariants are compared; a rule
compares all of them. The model is in `tests.support.log_model`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.errors import InvalidTransactionState, ProducerFenced, SequenceGap, StorageFull
from engine.log.log import Log
from engine.log.results import RemovalReason, RemovedSegment
from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.records.header import Codec
from engine.types import AppendOrigin, FetchIsolation
from tests.support import log_checks
from tests.support.compacted_model import adopt_cleaned
from tests.support.compaction import Compacted
from tests.support.filesystem import PowerCut
from tests.support.inodes import UNLIMITED
from tests.support.log_model import REMEMBERED_BATCHES, LogModel
from tests.support.logs import ALL_BYTES

RETENTION_MS = 600_000
DELETE_RETENTION_MS = 60_000
TOPIC = {
    "segment.bytes": 2_000,
    "segment.ms": 3_600_000,
    "index.interval.bytes": 100,
    "segment.index.bytes": 240,
    "retention.ms": RETENTION_MS,
    "delete.retention.ms": DELETE_RETENTION_MS,
}
KEYS = (b"ada", b"bob", b"cy", b"dot")
LAST_IDEMPOTENT = 2
IDEMPOTENT = st.integers(1, LAST_IDEMPOTENT)
TRANSACTIONAL = st.integers(LAST_IDEMPOTENT + 1, 5)
LOOK_UP_STEP = 11


class LogMachine(RuleBasedStateMachine):
    """Whatever can be done to a log, in any order."""

    @initialize(policy=st.sampled_from(["delete", "compact,delete"]))
    def open_empty(self, policy: str) -> None:
        self.numbers = iter(range(1_000_000))
        self.steps = 0
        self.model = LogModel()
        self.compacted = Compacted(overrides={**TOPIC, "cleanup.policy": policy})
        self.world = self.compacted.world
        self.saved_log_start = 0

    @property
    def log(self) -> Log:
        return self.compacted.log

    # -- writing -----------------------------------------------------------------------------

    def build(self, count: int, **options: Any) -> bytearray:
        number = next(self.numbers)
        now_ms = self.world.clock.now_ms()
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
            "is_transactional": producer_id > LAST_IDEMPOTENT,
        }
        return self.build(count, producer_id=producer_id, **{**defaults, **options})

    @rule(count=st.integers(1, 12), codec=st.sampled_from(list(Codec)), is_checked=st.booleans())
    def append(self, count: int, codec: Codec, is_checked: bool) -> None:  # noqa: FBT001 - by name
        data = self.build(count, codec=codec)
        self.log.append(data, checked=is_checked)
        self.model.append(bytes(data))

    @rule(counts=st.lists(st.integers(1, 4), min_size=2, max_size=4))
    def append_several_batches_at_once(self, counts: list[int]) -> None:
        batches = [self.build(count) for count in counts]
        data = bytearray(b"".join(batches))
        appended = self.log.append(data)
        for batch in batches:
            self.model.append(bytes(data[: len(batch)]))
            del data[: len(batch)]
        assert appended.last_offset == self.model.end - 1

    @rule(count=st.integers(1, 6), producer_id=IDEMPOTENT | TRANSACTIONAL)
    def append_of_producer(self, count: int, producer_id: int) -> None:
        if self.model.may_be_refused(producer_id):
            return
        data = self.produce(producer_id, count)
        assert not self.log.append(data).is_duplicate
        self.model.append(bytes(data))

    @rule(producer_id=TRANSACTIONAL, commits=st.booleans(), fences=st.booleans())
    def end_transaction(self, producer_id: int, commits: bool, fences: bool) -> None:  # noqa: FBT001 - by name
        if not self.model.is_in_transaction(producer_id):
            return
        epoch, _ = self.model.next_sequence(producer_id)
        data = build_end_marker(
            ControlType.COMMIT if commits else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=epoch + (fences and not commits),
            coordinator_epoch=0,
            timestamp=self.world.clock.now_ms(),
        )
        self.log.append(data, origin=AppendOrigin.COORDINATOR)
        self.model.append_marker(bytes(data), is_abort=not commits)

    @rule(producer_id=IDEMPOTENT | TRANSACTIONAL, count=st.integers(1, 3))
    def begin_epoch_of_producer(self, producer_id: int, count: int) -> None:
        epoch, _ = self.model.next_sequence(producer_id)
        if not self.model.is_in_transaction(producer_id):
            data = self.produce(producer_id, count, producer_epoch=epoch + 1, base_sequence=0)
            self.log.append(data)
            self.model.append(bytes(data))

    @rule(producer_id=IDEMPOTENT | TRANSACTIONAL, back=st.integers(1, REMEMBERED_BATCHES))
    def retry(self, producer_id: int, back: int) -> None:
        sent = self.model.remembered.get(producer_id, [])
        if len(sent) < back:
            return
        header = sent[-back].header
        data = self.produce(
            producer_id,
            header.last_offset_delta + 1,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
        answer = self.log.append(data)
        assert answer.is_duplicate
        assert answer.base_offset == header.base_offset
        assert answer.last_offset == header.last_offset

    @rule(producer_id=IDEMPOTENT | TRANSACTIONAL, ahead=st.integers(1, 5))
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
        newest = self.model.remembered[producer_id][-1]
        if newest.is_data_of_transaction and newest.ended_at is None:
            with pytest.raises(InvalidTransactionState):
                self.log.append(self.produce(producer_id, 1, is_transactional=False))

    @rule(remaining_bytes=st.integers(0, 60))
    def append_to_a_full_disk(self, remaining_bytes: int) -> None:
        self.world.disk.remaining_bytes = remaining_bytes
        with pytest.raises(StorageFull):
            self.log.append(self.build(1))
        self.world.disk.remaining_bytes = UNLIMITED

    # -- maintenance -------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        assert self.log.commit() == self.model.end
        self.model.commit()

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.model.end
        self.model.commit()

    @rule()
    def roll(self) -> None:
        rolled = self.log.roll()
        assert rolled.new_base_offset == self.model.end or not rolled.rolled

    @rule()
    def write_checkpoints(self) -> None:
        self.compacted.manager.checkpoint()
        self.saved_log_start = self.model.log_start

    @rule(milliseconds=st.sampled_from([1, 1_000, DELETE_RETENTION_MS, RETENTION_MS // 2]))
    def pass_time(self, milliseconds: int) -> None:
        self.world.scheduler.advance(milliseconds)
        self.model.show_up_to(self.log.watermarks.high_watermark)  # rolls flush in the background

    @rule()
    def run_retention(self) -> None:
        before = self.log.segments_info()
        removed = self.log.run_retention()
        assert [r.base_offset for r in removed] == [s.base_offset for s in before[: len(removed)]]
        for segment in removed:
            self.check_removal(segment)
        assert self.log.run_retention(dry_run=True) == []

    def check_removal(self, segment: RemovedSegment) -> None:
        """It was committed, and old, or below the log start anyway."""
        assert segment.next_offset <= self.model.high_watermark
        if segment.reason is RemovalReason.LOG_START:
            assert segment.next_offset <= self.model.log_start
            return
        oldest_ms = self.world.clock.now_ms() - RETENTION_MS
        for batch in self.model.due(segment.base_offset, segment.next_offset):
            assert all(timestamp < oldest_ms for _, timestamp, _, _ in batch.records)
        self.model.log_start = max(self.model.log_start, segment.next_offset)

    @precondition(lambda self: self.model.high_watermark > self.model.log_start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        before = data.draw(st.integers(self.model.log_start, self.model.high_watermark))
        assert self.log.delete_records(before) == before
        self.model.log_start = before

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.model.end + 1))
        before = self.model.log_start
        self.model.commit()
        self.model.truncate_to(offset)
        assert self.compacted.manager.truncate(self.log, offset) == self.model.end
        if not self.model.due(self.model.log_start, self.model.end):
            self.model.log_start = self.log.watermarks.log_start_offset  # it may start at its end
            assert self.model.log_start in {before, offset, self.model.end}
        self.saved_log_start = self.model.log_start

    @precondition(lambda self: self.log.config.is_compacted)
    @rule(seals=st.booleans())
    def compact(self, seals: bool) -> None:  # noqa: FBT001 - by name
        if seals:
            self.compacted.seal()
            self.model.commit()
        self.write_checkpoints()  # what is cleaned below the log start must not come back
        stable, active = self.log.watermarks.last_stable_offset, self.log.segments[-1].base_offset
        report = self.compacted.cleaner.clean_now(self.log)
        assert report.end_offset <= min(stable, active)
        now_ms = self.world.clock.now_ms()
        adopt_cleaned(self.model, self.log, now_ms, DELETE_RETENTION_MS, report)

    # -- restarts ----------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.compacted.close()
        self.model.commit()
        self.world.restart(power_cut=True)
        self.saved_log_start = self.model.log_start
        self.reopen(least=self.model.end)

    @rule()
    def kill(self) -> None:
        self.world.restart(power_cut=False)
        self.reopen(least=self.model.end)

    @rule(seed=st.none() | st.integers(0, 1_000))
    def cut_power(self, seed: int | None) -> None:
        self.restart_after_power_cut(seed, least=self.model.high_watermark)

    @rule(
        change=st.integers(1, 12),
        work=st.sampled_from(["append", "roll", "commit", "flush", "retention", "compaction"]),
        seed=st.none() | st.integers(0, 1_000),
    )
    def cut_power_in_the_middle(self, change: int, work: str, seed: int | None) -> None:
        least = self.model.high_watermark
        with self.power_cut_before(change):
            getattr(self, f"work_{work}")()
        self.restart_after_power_cut(seed, least=least)

    @rule(change=st.integers(1, 16), data=st.data(), seed=st.none() | st.integers(0, 1_000))
    def cut_power_while_truncating(
        self, change: int, data: st.DataObject, seed: int | None
    ) -> None:
        offset = data.draw(st.integers(0, self.model.end))
        with self.power_cut_before(change):
            self.compacted.manager.truncate(self.log, offset)
        self.saved_log_start = min(self.saved_log_start, offset)
        least = min(offset, self.model.high_watermark)
        self.restart_after_power_cut(seed, least=least)

    @contextlib.contextmanager
    def power_cut_before(self, change: int) -> Iterator[None]:
        with (
            contextlib.suppress(PowerCut),  # it may take fewer changes: then it goes right after it
            self.world.disk.power_cut_before(change, torn=bool(change % 2)),
        ):
            yield

    def work_append(self) -> None:
        data = self.build(8)
        self.log.append(data)
        self.model.append(bytes(data))

    def work_roll(self) -> None:
        self.log.roll()
        self.world.scheduler.run_due()

    def work_commit(self) -> None:
        self.log.commit()

    def work_flush(self) -> None:
        self.log.flush()

    def work_retention(self) -> None:
        for segment in self.log.run_retention(dry_run=True):
            self.model.log_start = max(self.model.log_start, segment.next_offset)
        self.log.run_retention()

    def work_compaction(self) -> None:
        if self.log.config.is_compacted:
            self.write_checkpoints()
            self.compacted.cleaner.clean_now(self.log)

    def restart_after_power_cut(self, seed: int | None, *, least: int) -> None:
        self.world.disk.restart(random=None if seed is None else Random(seed))
        self.world.restart(power_cut=False)
        self.reopen(least=least, has_lost=True)

    def reopen(self, *, least: int, has_lost: bool = False) -> None:
        """Open what is there: a prefix of the list that holds all that was committed."""
        model = self.model
        self.compacted.open()
        marks = self.log.watermarks
        end = marks.log_end_offset
        assert least <= marks.high_watermark == end <= model.end
        assert has_lost or self.log.recovery.damage is None
        if end < model.end:
            model.cut_at(end)
            model.end = end
        assert min(self.saved_log_start, end) <= marks.log_start_offset <= model.log_start
        model.log_start = self.saved_log_start = marks.log_start_offset
        model.high_watermark = min(model.high_watermark, end)
        assert model.leader_epoch <= self.log.leader_epoch <= model.leader_epoch + has_lost
        model.leader_epoch = self.log.leader_epoch
        if has_lost:
            now_ms = self.world.clock.now_ms()
            surely = least if self.log.config.is_compacted else end
            adopt_cleaned(
                model, self.log, now_ms, DELETE_RETENTION_MS, None, surely_there_below=surely
            )
        model.show_up_to(end)
        model.forget_producers()

    # -- reading -----------------------------------------------------------------------------

    @rule(
        data=st.data(),
        max_bytes=st.sampled_from([0, 1, 100, 300, 1_000, 5_000, ALL_BYTES]),
        isolation=st.sampled_from(FetchIsolation),
    )
    def read(self, data: st.DataObject, max_bytes: int, isolation: FetchIsolation) -> None:
        model = self.model
        log_checks.check_read(
            self.log,
            model,
            data.draw(st.integers(model.log_start, model.end)),
            max_bytes=max_bytes,
            isolation=isolation,
            end_offset=data.draw(st.none() | st.integers(model.log_start, model.end + 2)),
        )

    @rule()
    def look_up_everything(self) -> None:
        log_checks.check_look_ups(self.log, self.model, step=1)
        log_checks.check_outside(self.log, self.model)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "compacted"):
            self.steps += 1
            log_checks.check_marks(self.log, self.model)
            log_checks.check_whole(self.log, self.model)
            first = self.steps % LOOK_UP_STEP
            log_checks.check_look_ups(self.log, self.model, step=LOOK_UP_STEP, first=first)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=40, stateful_step_count=50)


@pytest.mark.long
def test_a_long_life_agrees_too() -> None:
    """What only many steps lead to is as the model has it."""
    run_state_machine_as_test(LogMachine, settings=settings(stateful_step_count=100))
