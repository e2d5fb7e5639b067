"""A log on a forgetful disk, driven by rules, against a list that forgets nothing."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.errors import OffsetBelowLogStart, OffsetBeyondLogEnd, SequenceGap
from engine.log.log import Log
from engine.records.builder import build_batch
from engine.records.header import Codec
from engine.types import FetchIsolation
from tests.support.builders import World
from tests.support.filesystem import PowerCut
from tests.support.logs import ALL_BYTES, batches_in, read_records, with_config

CONFIG = with_config(
    segment_bytes=2_000, index_interval_bytes=100, segment_index_bytes=240, retention_ms=600_000
)
PRODUCERS = 3
REMEMBERED_BATCHES = 5


@dataclass
class Batch:
    """One batch that was appended: what must be read while it is there."""

    base_offset: int
    values: list[bytes]
    size_bytes: int
    producer_id: int = -1
    sequence: int = -1

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.values)


@dataclass
class Model:
    """Everything that was ever appended and not taken back."""

    batches: list[Batch] = field(default_factory=list)
    log_start: int = 0
    high_watermark: int = 0
    end: int = 0
    remembered: dict[int, list[Batch]] = field(default_factory=dict)
    """By producer: the batches whose retry must be recognised."""

    def append(self, batch: Batch) -> None:
        assert batch.base_offset == self.end
        self.batches.append(batch)
        self.end = batch.next_offset
        before = self.remembered.get(batch.producer_id, [])
        self.remembered[batch.producer_id] = [*before, batch][-REMEMBERED_BATCHES:]

    def cut_at(self, end: int) -> None:
        assert end in {0, *(batch.next_offset for batch in self.batches)}, "a batch was torn"
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]
        self.end = end

    def forget_producers_below(self, offset: int) -> None:
        """A snapshot holds one batch of each producer, and the log start hides what is below."""
        self.remembered.clear()
        for batch in self.batches:
            if batch.base_offset >= offset:
                self.remembered[batch.producer_id] = [batch]

    def next_sequence(self, producer_id: int) -> int:
        sent = [batch for batch in self.batches if batch.producer_id == producer_id]
        return sent[-1].sequence + len(sent[-1].values) if sent else 0

    def values(self, start: int, end: int) -> list[tuple[int, bytes]]:
        return [
            (batch.base_offset + index, value)
            for batch in self.batches
            for index, value in enumerate(batch.values)
            if start <= batch.base_offset + index < end
        ]


class LogMachine(RuleBasedStateMachine):
    """Appends, rolls, deletions, restarts and power cuts in any order."""

    @initialize()
    def open_empty(self) -> None:
        self.world = World()
        self.model = Model()
        self.log: Log = self.world.open_log(CONFIG)
        self.numbers = iter(range(1_000_000))
        self.recovery_point = 0
        self.log_start = 0

    # -- writing -----------------------------------------------------------------------------

    def build(
        self, count: int, codec: Codec, producer_id: int = -1, sequence: int = -1
    ) -> tuple[bytearray, list[bytes]]:
        values = [b"%07d" % next(self.numbers) * (1 + index % 3) for index in range(count)]
        now_ms = self.world.clock.now_ms()
        batch = build_batch(
            [(now_ms + index % 5, b"key", value, ()) for index, value in enumerate(values)],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        return batch, values

    @rule(count=st.integers(1, 12), codec=st.sampled_from(list(Codec)), is_checked=st.booleans())
    def append(self, count: int, codec: Codec, is_checked: bool) -> None:  # noqa: FBT001 - by name
        data, values = self.build(count, codec)
        appended = self.log.append(data, checked=is_checked)
        self.model.append(Batch(appended.base_offset, values, len(data)))

    @rule(count=st.integers(1, 6), producer_id=st.integers(0, PRODUCERS - 1))
    def append_idempotently(self, count: int, producer_id: int) -> None:
        sequence = self.model.next_sequence(producer_id)
        data, values = self.build(count, Codec.NONE, producer_id, sequence)
        appended = self.log.append(data)
        assert not appended.is_duplicate
        self.model.append(Batch(appended.base_offset, values, len(data), producer_id, sequence))

    @rule(counts=st.lists(st.integers(1, 4), min_size=2, max_size=4))
    def append_several_batches_at_once(self, counts: list[int]) -> None:
        built = [self.build(count, Codec.NONE) for count in counts]
        appended = self.log.append(bytearray(b"".join(data for data, _ in built)))
        assert appended.base_offset == self.model.end
        for data, values in built:
            self.model.append(Batch(self.model.end, values, len(data)))
        assert appended.last_offset == self.model.end - 1

    @rule(producer_id=st.integers(0, PRODUCERS - 1), back=st.integers(1, REMEMBERED_BATCHES))
    def retry(self, producer_id: int, back: int) -> None:
        sent = self.model.remembered.get(producer_id, [])
        if len(sent) < back:
            return
        batch = sent[-back]
        records = [(0, b"key", value, ()) for value in batch.values]
        data = build_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=batch.sequence
        )
        answer = self.log.append(data)
        assert answer.is_duplicate
        assert (answer.base_offset, answer.last_offset + 1) == (
            batch.base_offset,
            batch.next_offset,
        )

    @rule(producer_id=st.integers(0, PRODUCERS - 1), ahead=st.integers(1, 5))
    def leave_a_gap(self, producer_id: int, ahead: int) -> None:
        if producer_id not in self.model.remembered:
            return
        sequence = self.model.next_sequence(producer_id) + ahead
        data, _ = self.build(1, Codec.NONE, producer_id, sequence)
        with pytest.raises(SequenceGap):
            self.log.append(data)

    # -- maintenance -------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        assert self.log.commit() == self.model.end
        self.model.high_watermark = self.model.end

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.model.end
        self.model.high_watermark = self.model.end

    @rule()
    def roll(self) -> None:
        rolled = self.log.roll()
        assert rolled.new_base_offset == self.model.end or not rolled.rolled

    @rule()
    def write_checkpoints(self) -> None:
        self.recovery_point = self.log.recovery_point
        self.log_start = self.log.watermarks.log_start_offset

    @rule(minutes=st.integers(1, 15))
    def pass_time(self, minutes: int) -> None:
        self.world.scheduler.advance(minutes * 60_000)
        self.model.high_watermark = self.log.watermarks.high_watermark  # rolls flush in background

    @rule()
    def run_retention(self) -> None:
        before = self.log.segments_info()
        removed = self.log.run_retention()
        assert [r.base_offset for r in removed] == [s.base_offset for s in before[: len(removed)]]
        if removed:
            assert removed[-1].next_offset <= self.model.high_watermark
            self.model.log_start = max(self.model.log_start, removed[-1].next_offset)
        assert self.log.run_retention(dry_run=True) == []

    @precondition(lambda self: self.model.high_watermark > self.model.log_start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        before = data.draw(st.integers(self.model.log_start, self.model.high_watermark))
        assert self.log.delete_records(before) == before
        self.model.log_start = before

    # -- restarts ----------------------------------------------------------------------------

    @rule(power_cut=st.booleans())
    def stop_and_start(self, power_cut: bool) -> None:  # noqa: FBT001 - by name
        self.log.flush()
        self.write_checkpoints()
        self.log.close()
        self.world.scheduler.advance(CONFIG.file_delete_delay_ms)
        self.world.restart(power_cut=power_cut)
        self.reopen(was_clean=True)
        assert self.log.watermarks.log_end_offset == self.model.end

    @rule()
    def kill(self) -> None:
        self.world.restart(power_cut=False)
        self.reopen()
        assert self.log.watermarks.log_end_offset == self.model.end

    @rule(seed=st.none() | st.integers(0, 1_000))
    def cut_power(self, seed: int | None) -> None:
        self.world.disk.restart(random=None if seed is None else Random(seed))
        self.world.restart(power_cut=False)
        self.reopen()

    @rule(
        change=st.integers(1, 12),
        work=st.sampled_from(["append", "roll", "commit", "flush", "retention", "stop"]),
        seed=st.none() | st.integers(0, 1_000),
    )
    def cut_power_in_the_middle(self, change: int, work: str, seed: int | None) -> None:
        before = self.log.watermarks
        with (
            contextlib.suppress(PowerCut),  # it may take fewer changes: then it goes right after it
            self.world.disk.power_cut_before(change, torn=bool(change % 2)),
        ):
            getattr(self, f"work_{work}")()
        self.model.high_watermark = before.high_watermark
        self.cut_power(seed)

    def work_append(self) -> None:
        data, values = self.build(8, Codec.NONE)
        self.model.append(Batch(self.model.end, values, len(data)))  # it may get there or not
        self.log.append(data)

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

    def work_stop(self) -> None:
        self.log.close()

    def reopen(self, *, was_clean: bool = False) -> None:
        """Open what is there: a prefix of the list that holds all that was committed."""
        committed = self.model.high_watermark
        self.log = self.world.open_log(
            CONFIG,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start,
            was_clean=was_clean,
        )
        marks = self.log.watermarks
        assert committed <= marks.high_watermark == marks.log_end_offset <= self.model.end
        self.model.cut_at(marks.log_end_offset)
        self.model.high_watermark = marks.high_watermark
        assert marks.log_start_offset <= max(self.model.log_start, self.log_start)
        self.model.log_start = marks.log_start_offset
        self.model.forget_producers_below(marks.log_start_offset)
        assert self.log.recovery.damage is None or not was_clean

    # -- reading -----------------------------------------------------------------------------

    @rule(
        data=st.data(),
        max_bytes=st.sampled_from([0, 1, 100, 300, 1_000, 5_000, ALL_BYTES]),
        isolation=st.sampled_from([FetchIsolation.HIGH_WATERMARK, FetchIsolation.LOG_END]),
    )
    def read(self, data: st.DataObject, max_bytes: int, isolation: FetchIsolation) -> None:
        model = self.model
        offset = data.draw(st.integers(model.log_start, model.end))
        end_offset = data.draw(st.none() | st.integers(model.log_start, model.end + 2))
        fetched = self.log.read(
            offset, max_bytes=max_bytes, isolation=isolation, end_offset=end_offset
        )
        assert fetched is not None
        bound = model.end if isolation is FetchIsolation.LOG_END else model.high_watermark
        due = [b for b in model.batches if offset < b.next_offset and b.next_offset <= bound]
        if end_offset is not None:
            due = [] if offset >= end_offset else [b for b in due if b.base_offset < end_offset]
        expected: list[Batch] = []
        for batch in due:
            if expected and sum(b.size_bytes for b in [*expected, batch]) > max_bytes:
                break
            expected.append(batch)
        found = [
            (record.offset, record.value)
            for batch in batches_in(fetched.data)
            for record in batch.records()
        ]
        assert fetched.next_offset == (expected[-1].next_offset if expected else offset)
        first = expected[0].base_offset if expected else 0
        assert found == (model.values(first, fetched.next_offset) if expected else [])

    @rule()
    def read_outside(self) -> None:
        with pytest.raises(OffsetBeyondLogEnd):
            self.log.read(self.model.end + 1, max_bytes=1)
        if self.model.log_start:
            with pytest.raises(OffsetBelowLogStart):
                self.log.read(self.model.log_start - 1, max_bytes=1)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        self.log.check_invariants()
        marks, model = self.log.watermarks, self.model
        assert marks.log_start_offset == model.log_start
        assert marks.high_watermark == model.high_watermark
        assert marks.log_end_offset == model.end

    @rule()
    def read_everything(self) -> None:
        model = self.model
        assert [(record.offset, record.value) for record in read_records(self.log)] == model.values(
            model.log_start, model.high_watermark
        )


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=100, stateful_step_count=50)
