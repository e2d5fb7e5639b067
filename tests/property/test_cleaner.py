"""Compaction against a simple model: a list of everything that was appended.

Whatever is appended, aborted, cleaned or interrupted: a reader from the start gets the last
committed value of each key, and remaining records keep their offset, time and content.
"""

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.cleaner.offset_map import SLOT_BYTES, OffsetMap
from engine.config import CleanerConfig
from engine.records.control import ControlType
from engine.records.header import Codec
from engine.types import FetchIsolation
from tests.support.compaction import Compacted, Pair, newest
from tests.support.logs import read_records

KEYS = st.sampled_from([f"key-{number}" for number in range(6)])
VALUES = st.none() | st.sampled_from(["1", "2", "x" * 40])
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)
PRODUCERS = st.integers(1, 2)
RETENTION_MS = 1000


@dataclass
class Appended:
    """One record in the model."""

    timestamp: int
    key: str
    value: str | None
    producer_id: int | None
    is_committed: bool


class Cleaning(RuleBasedStateMachine):
    """Clients append, with and without transactions; the cleaner works with little memory."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[int, Appended] = {}
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    @initialize(slots=st.sampled_from([2, 4, 1000]), segment_bytes=st.sampled_from([300, 4000]))
    def start(self, slots: int, segment_bytes: int) -> None:
        self.compacted = Compacted(
            overrides={"segment.bytes": segment_bytes, "delete.retention.ms": RETENTION_MS}
        )
        self.compacted.config = CleanerConfig(
            enable=False, dedupe_buffer_bytes=slots * SLOT_BYTES, chunk_bytes=512
        )
        self.compacted.cleaner = self.compacted.new_cleaner()

    @rule(pairs=PAIRS, codec=st.sampled_from(Codec))
    def append(self, pairs: list[Pair], codec: Codec) -> None:
        self._append(pairs, None, codec=codec)

    @rule(pairs=PAIRS, producer_id=PRODUCERS)
    def append_in_transaction(self, pairs: list[Pair], producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self._append(
            pairs,
            producer_id,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        self.sequences[producer_id] = sequence + len(pairs)
        self.open.add(producer_id)

    def _append(self, pairs: list[Pair], owner: int | None, **options: Any) -> None:
        timestamp = self.compacted.world.clock.now_ms()
        base_offset = self.compacted.put(*pairs, timestamp=timestamp, **options)
        for offset, (key, value) in enumerate(pairs, base_offset):
            self.written[offset] = Appended(timestamp, key, value, owner, owner is None)

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans())
    def end_transaction(self, *, commit: bool) -> None:
        producer_id = min(self.open)
        self.open.remove(producer_id)
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        self.compacted.end_transaction(kind, producer_id)
        for record in self.written.values():
            if record.producer_id == producer_id:
                record.producer_id = None
                record.is_committed = commit

    @rule()
    def seal(self) -> None:
        self.compacted.seal()

    @rule()
    def clean(self) -> None:
        self.compacted.cleaner.run_pass()

    @rule()
    def clean_all(self) -> None:
        self.compacted.seal()
        self.compacted.cleaner.clean_now(self.compacted.log)

    @rule(milliseconds=st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS]))
    def wait(self, milliseconds: int) -> None:
        self.compacted.world.clock.advance(milliseconds)

    @rule(power_cut=st.booleans())
    def crash(self, *, power_cut: bool) -> None:
        self.compacted.log.durability.commit()
        self.compacted.crash(power_cut=power_cut)

    @rule()
    def restart(self) -> None:
        self.compacted.close()
        self.compacted.world.restart(power_cut=False)
        self.compacted.open()

    @invariant()
    def readers_end_up_with_the_last_values(self) -> None:
        """Readers of committed records, up to the last stable offset."""
        if not hasattr(self, "compacted"):
            return
        self.compacted.log.durability.commit()
        stable = self.compacted.log.watermarks.last_stable_offset
        expected = newest(
            (record.key, record.value)
            for offset, record in sorted(self.written.items())
            if record.is_committed and offset < stable
        )
        assert newest(self.compacted.pairs(isolation=FetchIsolation.TXN_COMMITTED)) == expected

    @invariant()
    def what_stays_is_what_it_was(self) -> None:
        """Offset, time, key and value; in order."""
        if not hasattr(self, "compacted"):
            return
        log = self.compacted.log
        records = read_records(log)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        for record in records:
            known = self.written[record.offset]
            value = None if known.value is None else known.value.encode()
            assert (record.timestamp, record.key, record.value) == (
                known.timestamp,
                known.key.encode(),
                value,
            )
        log.maintenance.check_invariants()


TestCleaning = Cleaning.TestCase
TestCleaning.settings = settings(max_examples=60, stateful_step_count=30)


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62)), max_size=60))
def test_the_map_agrees_with_a_dictionary(puts: list[tuple[bytes, int]]) -> None:
    """In a table that is just large enough, so that every slot is used."""
    model: dict[bytes, int] = {}
    offset_map = OffsetMap((len({key for key, _ in puts}) + 1) * SLOT_BYTES)
    for key, offset in puts:
        offset_map.put(key, offset)
        model[key] = offset
        assert offset_map.latest_offset == offset
    assert {key: offset_map.get(key) for key in model} == model
    assert len(offset_map) == len(model)
    assert offset_map.get(b"none of those") == -1
