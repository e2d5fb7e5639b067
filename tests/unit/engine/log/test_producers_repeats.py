"""Rows about producers whose appends may be repeated."""

import pytest

from engine.errors import ProducerFenced, SequenceGap
from engine.types import AppendOrigin
from tests.support.builders import World, new_batch
from tests.support.conformance_places import (
    DENSE,
    Producer,
    entry_of,
    transaction_of,
)
from tests.support.kafka import kafka

REPLICATION = AppendOrigin.REPLICATION


@kafka("UnifiedLogTest.testDuplicateAppends")
def test_a_retry_of_the_last_five_batches_is_answered_and_not_written() -> None:
    """The original offsets come back; a partial overlap and an older batch are gaps."""
    log = World().open_log(DENSE)
    producer = Producer(log)
    sent = []
    for count in (2, 1, 3, 1, 2, 4):
        first = producer.sequence
        sent.append((first, producer.send(count)))
    end = log.watermarks.log_end_offset
    for sequence, original in sent[1:]:
        retry = producer.batch(original.records_count, base_sequence=sequence)
        answer = log.append(retry)
        assert answer.is_duplicate
        assert (answer.base_offset, answer.last_offset) == original[:2]
    for sequence, count in ((0, 2), (9, 3), (8, 5), (2, 2)):  # too old, then three overlaps
        with pytest.raises(SequenceGap):
            log.append(producer.batch(count, base_sequence=sequence))
    assert log.watermarks.log_end_offset == end


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
    log.append(data, origin=REPLICATION)
    log.durability.commit()
    fetched = log.reader.read(0, max_bytes=1 << 20)
    assert fetched is not None
    assert bytes(fetched.data) == data
    assert [entry.producer_id for entry in log.producers.active()] == [1, 2, 3]


@kafka("UnifiedLogTest.testOldProducerEpoch")
def test_an_older_epoch_is_fenced() -> None:
    """Once epoch 1 has written, epoch 0 writes nothing more."""
    log = World().open_log(DENSE)
    Producer(log, epoch=1).send()
    with pytest.raises(ProducerFenced):
        Producer(log, epoch=0).send()
    assert log.watermarks.log_end_offset == 1


@kafka("UnifiedLogTest.testNonSequentialAppend")
def test_a_gap_in_the_sequences_is_refused() -> None:
    """After sequence 0 comes 1 and not 2, and nothing is written."""
    log = World().open_log(DENSE)
    Producer(log).send()
    with pytest.raises(SequenceGap):
        Producer(log, sequence=2).send()
    assert log.watermarks.log_end_offset == 1


@kafka("UnifiedLogTest.testAllowNonZeroSequenceOnFirstAppendNonZeroEpoch")
def test_an_unknown_producer_may_start_anywhere() -> None:
    """Any epoch and sequence begin a producer, and the next one follows."""
    log = World().open_log(DENSE)
    producer = Producer(log, epoch=5, sequence=3)
    producer.send()
    producer.send()
    assert entry_of(log).last_sequence == 4


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
