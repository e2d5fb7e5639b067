"""Idempotent producers: retries get the first result, gaps are refused."""

from typing import Any

import pytest

from engine.errors import ProducerFenced, SequenceGap
from engine.log.log import Log
from engine.types import INT32_MAX, AppendOrigin
from tests.support.builders import World, new_batch
from tests.support.conformance_places import DENSE, Producer, transaction_of
from tests.support.kafka import kafka
from tests.support.logs import CONFIG, read_headers, with_config
from tests.support.time import START_MS

DAY_MS = 86_400_000
TIME_2013 = 1_357_000_000_000


def numbered(
    sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **options: Any
) -> bytearray:
    return new_batch(
        count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options
    )


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def log(world: World) -> Log:
    return world.open_log(CONFIG)


@kafka("UnifiedLogTest.testDuplicateAppends")
def test_a_repeated_batch_gets_the_first_answer(log: Log) -> None:
    """Each of the last five is recognised, and nothing is written."""
    for sequence in range(0, 12, 2):
        log.append(numbered(sequence, 2))
    size = log.reader.size_bytes
    for sequence in range(2, 12, 2):
        answer = log.append(numbered(sequence, 2))
        assert answer.is_duplicate
        assert (answer.base_offset, answer.last_offset) == (sequence, sequence + 1)
        assert (answer.records_count, answer.timestamp) == (2, START_MS)
    assert log.reader.size_bytes == size
    assert log.watermarks.log_end_offset == 12


@kafka("UnifiedLogTest.testDuplicateAppends")
@pytest.mark.parametrize(
    ("sequence", "count"), [(0, 2), (10, 1), (11, 1), (9, 3), (10, 3)], ids=str
)
def test_what_only_overlaps_is_no_duplicate(log: Log, sequence: int, count: int) -> None:
    """Older than five batches, a part, or more of it is refused."""
    for first in range(0, 12, 2):
        log.append(numbered(first, 2))
    with pytest.raises(SequenceGap):
        log.append(numbered(sequence, count))
    assert log.watermarks.log_end_offset == 12


@kafka("UnifiedLogTest.testNonSequentialAppend")
def test_a_gap_is_refused_with_what_was_expected(log: Log) -> None:
    """Sequence 0 then 2."""
    log.append(numbered(0))
    with pytest.raises(SequenceGap) as refusal:
        log.append(numbered(2))
    facts = refusal.value.facts()
    assert (facts["producer_id"], facts["expected"], facts["received"]) == (7, 1, 2)
    assert log.append(numbered(1)).base_offset == 1


@kafka("UnifiedLogTest.testOldProducerEpoch")
def test_an_older_epoch_is_fenced(log: Log) -> None:
    """A newer epoch begins at 0; then the older one may not write."""
    log.append(numbered(0, epoch=1))
    log.append(numbered(0, epoch=2))
    with pytest.raises(ProducerFenced) as refusal:
        log.append(numbered(1, epoch=1))
    assert refusal.value.facts()["current_epoch"] == 2
    with pytest.raises(SequenceGap):
        log.append(numbered(5, epoch=3))


@kafka("UnifiedLogTest.testAllowNonZeroSequenceOnFirstAppendNonZeroEpoch")
def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    """The log may have forgotten it."""
    assert log.append(numbered(42, epoch=3)).base_offset == 0
    assert log.append(numbered(43, epoch=3)).base_offset == 1


def test_sequences_wrap_at_31_bits(log: Log) -> None:
    """After 2**31 - 1 comes 0, within a batch and between two."""
    log.append(numbered(INT32_MAX - 1))
    log.append(numbered(INT32_MAX, 3))
    assert log.append(numbered(INT32_MAX, 3)).is_duplicate
    assert log.append(numbered(2)).base_offset == 4
    with pytest.raises(SequenceGap):
        log.append(numbered(4))


def test_several_batches_are_judged_one_after_the_other(log: Log) -> None:
    """Batches of one append must follow each other; together they are one duplicate."""
    body = numbered(0, 2) + numbered(2, 3) + numbered(0, producer_id=8)
    log.append(bytearray(body))
    answer = log.append(bytearray(body))
    assert (answer.is_duplicate, answer.base_offset, answer.last_offset) == (True, 0, 5)
    with pytest.raises(SequenceGap):
        log.append(numbered(5, 1) + numbered(7, 1))
    assert log.watermarks.log_end_offset == 6
    with pytest.raises(SequenceGap):
        log.append(numbered(2, 3) + numbered(5, 1))
    assert log.append(numbered(5, 1)).base_offset == 6


@kafka("UnifiedLogTest.testMultipleProducerIdsPerMemoryRecord")
def test_a_set_of_many_producers_is_stored_unchanged(log: Log) -> None:
    """One body may hold batches of several."""
    log.append(
        b"".join(numbered(0, producer_id=number) for number in (5, 9, 2)) + bytes(new_batch())
    )
    log.durability.commit()
    assert [header.producer_id for header in read_headers(log)] == [5, 9, 2, -1]
    assert log.producers.highest_id == 9


def test_a_retry_of_what_a_power_cut_took_is_written(world: World, log: Log) -> None:
    """The producer's state ends where the log does."""
    log.append(numbered(0))
    log.durability.commit()
    log.append(numbered(1))
    world.restart(power_cut=True)
    again = world.open_log(CONFIG)
    answer = again.append(numbered(1))
    assert (answer.is_duplicate, answer.base_offset) == (False, 1)


def test_old_record_times_do_not_lose_the_producer(world: World, log: Log) -> None:
    """A backfill of 2013 is remembered for a day from its append, and from its loading."""
    old = {"timestamp": TIME_2013}
    log.append(numbered(0, **old))
    world.clock.advance(DAY_MS - 1)
    assert log.producers.expire() == 0
    assert log.append(numbered(0, **old)).is_duplicate
    log.durability.commit()
    world.restart(power_cut=False)
    again = world.open_log(CONFIG)
    world.clock.advance(DAY_MS - 1)
    assert again.append(numbered(0, **old)).is_duplicate
    assert [entry.producer_id for entry in again.producers.active()] == [7]
    world.clock.advance(1)
    assert again.producers.active() == ()
    assert again.producers.expire() == 1
    assert again.append(numbered(5, **old)).base_offset == 1


def test_a_refused_append_may_have_rolled(world: World) -> None:
    """The roll comes first, as in Kafka, and leaves an empty segment that is used next (5.5)."""
    log = world.open_log(with_config(segment_bytes=200))
    log.append(numbered(0, 5))
    with pytest.raises(SequenceGap):
        log.append(numbered(9, 5))
    assert log.reader.segments_count == 2
    assert log.append(numbered(5, 5)).base_offset == 5
    log.maintenance.check_invariants()


@kafka(
    "UnifiedLogTest.testDuplicateAppendToFollower",
    "UnifiedLogTest.testMultipleProducersWithDuplicatesInSingleAppend",
    "UnifiedLogTest.testMultipleProducerIdsPerMemoryRecord",
)
def test_batches_with_given_offsets_may_repeat_sequences() -> None:
    """What comes from another log is stored as it is, duplicates and several producers included."""
    log = World().open_log(DENSE)
    data = b"".join(
        new_batch(base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0)
        for offset, producer in enumerate((1, 2, 1, 3, 2, 1))
    )
    log.append(data, origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    fetched = log.reader.read(0, max_bytes=1 << 20)
    assert fetched is not None
    assert bytes(fetched.data) == data
    assert [entry.producer_id for entry in log.producers.active()] == [1, 2, 3]


@kafka("UnifiedLogTest.testActiveProducers")
def test_producers_are_described() -> None:
    """Idempotent, in a transaction, and after one: epoch, last sequence, start, coordinator."""
    log = World().open_log(DENSE)
    Producer(log, 10, epoch=15).send()
    begun = transaction_of(log, 20)
    begun.send(2)
    ended = transaction_of(log, 30)
    ended.send()
    ended.commit()
    described = [
        (e.producer_id, e.producer_epoch, e.last_sequence, e.transaction_first_offset)
        for e in log.producers.active()
    ]
    assert described == [(10, 15, 0, None), (20, 0, 1, 1), (30, 0, 0, None)]
    assert [e.coordinator_epoch for e in log.producers.active()] == [-1, -1, 0]
