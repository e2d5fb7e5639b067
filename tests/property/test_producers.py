"""Idempotence against a simple model.

Whatever a client does, records are written once and in order. The model is a list of everything
that was appended, without window, arithmetic or snapshots. Sequences begin shortly before they
wrap.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from engine.errors import ProducerError, ProducerFenced, SequenceGap
from engine.fs.posix import PosixFileSystem
from engine.records.control import ControlType
from engine.records.header import BatchHeader
from engine.state.producer_verdict import Accepted, Duplicate
from engine.state.producers import ProducerStates
from engine.types import INT32_MAX, OffsetMetadata
from tests.support.producers import (
    ABORT,
    COMMIT,
    ProducerLog,
    control_batch,
    data_batch,
    plain_batch,
)
from tests.support.time import ManualClock

PRODUCERS = st.integers(1, 3)
COUNTS = st.integers(1, 4)
SEQUENCES = 2**31
EXPIRATION_MS = 1_000_000_000
WINDOW = 5


@dataclass(frozen=True)
class Written:
    """One batch of the model's log; `marker` if it is a control batch."""

    header: BatchHeader
    marker: ControlType | None = None


class Producers(RuleBasedStateMachine):
    """Clients append, retry, skip and roll back; the log is truncated, restarted and replicated."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.written: list[Written] = []
        self.remembered: dict[int, int] = {}
        """How many of a producer's newest batches are in its window, by producer id."""
        self.high_watermark = 0
        self.log = ProducerLog(self.open())

    def teardown(self) -> None:
        self.temporary.cleanup()

    def open(self) -> ProducerStates:
        directory = Path(self.temporary.name)
        return ProducerStates(
            PosixFileSystem(), directory, clock=self.clock, expiration_ms=EXPIRATION_MS
        )

    # ------------------------------------------------------------------ the model

    @property
    def end_offset(self) -> int:
        return self.written[-1].header.next_offset if self.written else 0

    def of(self, producer_id: int) -> list[Written]:
        return [each for each in self.written if each.header.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int | None:
        batches = self.of(producer_id)
        return batches[-1].header.producer_epoch if batches else None

    def data_of(self, producer_id: int) -> list[BatchHeader]:
        """The data batches of the producer's present epoch, oldest first."""
        epoch = self.epoch(producer_id)
        return [
            each.header
            for each in self.of(producer_id)
            if each.marker is None and each.header.producer_epoch == epoch
        ]

    def next_sequence(self, producer_id: int) -> int | None:
        """The one sequence that is right, or None if any is."""
        if self.epoch(producer_id) is None:
            return None
        data = self.data_of(producer_id)
        last = data[-1].base_sequence + data[-1].last_offset_delta if data else -1
        return (last + 1) % SEQUENCES

    def open_transaction(self, producer_id: int) -> int | None:
        first = None
        for each in self.of(producer_id):
            if each.marker is not None:
                first = None
            elif first is None and each.header.is_transactional:
                first = each.header.base_offset
        return first

    def unstable(self) -> int | None:
        """The first offset of a transaction that is open or whose marker is not replicated."""
        first: dict[int, int] = {}
        unstable = []
        for each in self.written:
            producer_id = each.header.producer_id
            if each.marker is not None:
                begun = first.pop(producer_id, None)
                if begun is not None and each.header.base_offset >= self.high_watermark:
                    unstable.append(begun)
            elif each.header.is_transactional:
                first.setdefault(producer_id, each.header.base_offset)
        return min([*first.values(), *unstable], default=None)

    def note(self, header: BatchHeader, marker: ControlType | None = None) -> None:
        producer_id = header.producer_id
        if self.epoch(producer_id) not in (None, header.producer_epoch):
            self.remembered[producer_id] = 0
        if marker is None:
            known = self.remembered.get(producer_id, 0)
            self.remembered[producer_id] = min(known + 1, WINDOW)
        self.written.append(Written(header, marker))

    # ------------------------------------------------------------------ what clients do

    @initialize(sequence=st.sampled_from([0, INT32_MAX - 5, INT32_MAX - 1]))
    def somebody_is_close_to_the_end_of_the_sequences(self, sequence: int) -> None:
        header = data_batch(1, offset=0, sequence=sequence)
        self.log.append(header)
        self.note(header)

    @rule(producer_id=PRODUCERS, count=COUNTS, transactional=st.booleans())
    def append_next(self, producer_id: int, count: int, *, transactional: bool) -> None:
        sequence = self.next_sequence(producer_id)
        header = data_batch(
            producer_id,
            offset=self.end_offset,
            sequence=3 if sequence is None else sequence,
            count=count,
            epoch=self.epoch(producer_id) or 0,
            transactional=transactional,
        )
        if self.open_transaction(producer_id) is not None and not transactional:
            assert self.is_refused(header)
            return
        assert isinstance(self.log.append(header), Accepted)
        self.note(header)

    @rule(producer_id=PRODUCERS, count=COUNTS, distance=st.integers(-9, 9).filter(bool))
    def append_out_of_order(self, producer_id: int, count: int, distance: int) -> None:
        right = self.next_sequence(producer_id)
        if right is None:
            return
        header = data_batch(
            producer_id,
            offset=self.end_offset,
            sequence=(right + distance) % SEQUENCES,
            count=count,
            epoch=self.epoch(producer_id) or 0,
        )
        window = self.data_of(producer_id)[-self.remembered[producer_id] or SEQUENCES :]
        if not any(
            (known.base_sequence, known.last_sequence)
            == (header.base_sequence, header.last_sequence)
            for known in window
        ):
            assert self.is_refused(header, SequenceGap)

    @rule(producer_id=PRODUCERS, back=st.integers(1, 8))
    def retry(self, producer_id: int, back: int) -> None:
        data = self.data_of(producer_id)
        if back > len(data):
            return
        known = data[-back]
        header = known._replace(base_offset=self.end_offset)
        if back > self.remembered[producer_id]:
            assert self.is_refused(header, SequenceGap)
            return
        verdict = self.log.append(header)
        assert isinstance(verdict, Duplicate)
        assert (verdict.first_offset, verdict.last_offset) == (
            known.base_offset,
            known.last_offset,
        )

    @rule(producer_id=PRODUCERS)
    def append_with_an_old_epoch(self, producer_id: int) -> None:
        epoch = self.epoch(producer_id)
        if epoch:
            header = data_batch(producer_id, offset=self.end_offset, sequence=0, epoch=epoch - 1)
            assert self.is_refused(header, ProducerFenced)

    @rule(producer_id=PRODUCERS, bump=st.integers(0, 1), marker=st.sampled_from([COMMIT, ABORT]))
    def end_transaction(self, producer_id: int, bump: int, marker: ControlType) -> None:
        epoch = (self.epoch(producer_id) or 0) + bump
        begun = self.open_transaction(producer_id)
        offset = self.end_offset
        verdict = self.log.end_transaction(
            marker, offset=offset, producer_id=producer_id, epoch=epoch
        )
        completed = [(txn.first_offset, txn.last_offset) for txn in verdict.completed]
        assert completed == ([] if begun is None else [(begun, offset)])
        self.note(control_batch(producer_id, offset=offset, epoch=epoch), marker)
        self.remembered.setdefault(producer_id, 0)

    @rule(count=COUNTS)
    def append_without_a_producer(self, count: int) -> None:
        header = plain_batch(offset=self.end_offset, count=count)
        self.log.append(header)
        self.written.append(Written(header))

    # ------------------------------------------------------------------ what happens to the log

    @rule(back=st.integers(0, 4))
    def replicate(self, back: int) -> None:
        replicated = self.written[: len(self.written) - back]
        if replicated:
            self.raise_high_watermark(replicated[-1].header.next_offset)

    def raise_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, offset)
        self.log.states.on_high_watermark(self.high_watermark)

    @rule()
    def take_snapshot(self) -> None:
        self.log.states.take_snapshot(sync=False)

    @rule()
    def restart(self) -> None:
        self.log = ProducerLog(self.open())
        self.reload()

    @precondition(lambda self: self.written)
    @rule(back=st.integers(1, 5))
    def truncate(self, back: int) -> None:
        self.written = self.written[:-back]
        self.reload()

    def reload(self) -> None:
        """Come back as the loader does: the newest snapshot, every batch after it, a full flush."""
        states = self.log.states
        keeps_its_windows = states.map_end_offset == self.end_offset > 0
        states.truncate_and_reload(0, self.end_offset, self.clock.now_ms())
        if not keeps_its_windows:
            self.shrink_windows(states.map_end_offset)
        for each in self.written:
            if each.header.base_offset >= states.map_end_offset:
                self.log.replicate(each.header, each.marker)
        self.high_watermark = 0
        self.raise_high_watermark(self.end_offset)

    def shrink_windows(self, loaded_offset: int) -> None:
        """A snapshot holds one batch of a producer; those read after it are added."""
        for producer_id in (1, 2, 3):
            offsets = [header.base_offset for header in self.data_of(producer_id)]
            later = sum(1 for offset in offsets if offset >= loaded_offset)
            kept = min(len(offsets) - later, 1)
            self.remembered[producer_id] = min(kept + later, WINDOW)

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def the_state_agrees_with_the_model(self) -> None:
        states = self.log.states
        states.check_invariants()
        assert states.map_end_offset == self.end_offset
        for producer_id in (1, 2, 3):
            entry = states.entry(producer_id)
            if entry is None:
                assert self.of(producer_id) == []
                continue
            data = self.data_of(producer_id)
            assert entry.producer_epoch == self.epoch(producer_id)
            assert entry.last_sequence == (data[-1].last_sequence if data else -1)
            assert entry.transaction_first_offset == self.open_transaction(producer_id)
            remembered = self.remembered[producer_id]
            assert [
                (batch.first_sequence, batch.last_sequence, batch.first_offset, batch.last_offset)
                for batch in entry.batches
            ] == [
                (header.base_sequence, header.last_sequence, header.base_offset, header.last_offset)
                for header in data[len(data) - remembered :]
            ]

    @invariant()
    def the_first_unstable_offset_agrees(self) -> None:
        unstable = self.unstable()
        expected = None if unstable is None else OffsetMetadata(unstable)
        assert self.log.states.first_unstable_offset == expected

    def is_refused(self, header: BatchHeader, error: type[ProducerError] = ProducerError) -> bool:
        before = self.log.states.entry(header.producer_id)
        try:
            self.log.append(header)
        except error:
            return self.log.states.entry(header.producer_id) is before
        return False


TestProducers = Producers.TestCase
TestProducers.settings = settings(stateful_step_count=40)
