"""One producer's remembered batches and when it is forgotten."""

import pytest

from engine.state.producer_entry import CACHED_BATCHES, BatchMetadata, ProducerEntry
from engine.topic_keys import DAY_MS
from engine.types import INT32_MAX
from tests.support.kafka import kafka
from tests.support.producers import COMMIT, control_batch, data_batch, marker_of

NOW_MS = 1_795_219_400_000


def entry_with(*first_sequences: int) -> ProducerEntry:
    """A producer that appended single records with these sequences, one offset each."""
    entry = ProducerEntry(1)
    for offset, sequence in enumerate(first_sequences):
        entry = entry.with_batch(data_batch(offset=offset, sequence=sequence), NOW_MS)
    return entry


def test_a_new_producer_knows_no_sequence() -> None:
    """Before the first batch it has neither a first nor a last sequence."""
    entry = ProducerEntry(1)
    assert (entry.batches, entry.last_sequence) == ((), -1)


def test_the_window_holds_the_last_five_batches() -> None:
    """The sixth batch pushes out the first."""
    entry = entry_with(0, 1, 2, 3, 4, 5)
    assert len(entry.batches) == CACHED_BATCHES == 5
    assert (entry.batches[0].first_sequence, entry.last_sequence) == (1, 5)


@kafka("ProducerStateManagerTest.testProducerSequenceWithWrapAroundBatchRecord")
def test_a_batch_over_the_end_of_the_sequences_keeps_both_ends() -> None:
    """MAX-10 to 9, over 2000 to 2020."""
    header = data_batch(offset=2000, sequence=INT32_MAX - 10, count=21)
    (batch,) = ProducerEntry(1).with_batch(header, NOW_MS).batches
    assert (batch.first_sequence, batch.last_sequence) == (INT32_MAX - 10, 9)
    assert (batch.first_offset, batch.last_offset) == (2000, 2020)


def test_another_epoch_forgets_the_batches() -> None:
    """A batch of a new epoch starts a new window."""
    header = data_batch(offset=9, sequence=0, epoch=1)
    entry = entry_with(0, 1).with_batch(header, NOW_MS)
    assert entry.batches == (BatchMetadata(0, 9, 0, header.max_timestamp),)


@pytest.mark.parametrize("sequence", range(5))
def test_each_remembered_batch_is_found_again(sequence: int) -> None:
    """A retry of any of the last five batches finds that batch."""
    found = entry_with(*range(5)).duplicate_of(data_batch(offset=50, sequence=sequence))
    assert found is not None
    assert found.first_offset == sequence


@pytest.mark.parametrize(
    ("sequence", "count", "epoch"),
    [(3, 4, 0), (2, 3, 0), (2, 5, 0), (3, 3, 0), (2, 4, 1)],
    ids=["shifted", "subset", "superset", "tail", "other epoch"],
)
def test_only_exactly_the_same_sequences_are_a_duplicate(
    sequence: int, count: int, epoch: int
) -> None:
    """A batch that overlaps a remembered one in part is not found."""
    entry = ProducerEntry(1).with_batch(data_batch(offset=2, sequence=2, count=4), NOW_MS)
    other = data_batch(offset=50, sequence=sequence, count=count, epoch=epoch)
    assert entry.duplicate_of(other) is None


def test_the_oldest_of_equal_batches_is_found() -> None:
    """A replica may hold one batch twice; a retry is answered with the first."""
    entry = ProducerEntry(1)
    for offset in (10, 20):
        entry = entry.with_batch(data_batch(offset=offset, sequence=0), NOW_MS)
    found = entry.duplicate_of(data_batch(offset=30, sequence=0))
    assert found is not None
    assert found.last_offset == 10


def test_a_marker_ends_the_transaction_and_keeps_the_window() -> None:
    """A marker of the same epoch leaves duplicate detection as it was."""
    entry = entry_with(0, 1)._replace(transaction_first_offset=0)
    marker = marker_of(control_batch(offset=2), (COMMIT, 7))
    ended = entry.with_marker(0, marker, NOW_MS)
    assert ended.transaction_first_offset is None
    assert ended.coordinator_epoch == 7
    assert ended.batches == entry.batches


@kafka("ProducerStateManagerTest.testPidExpirationTimeout")
def test_a_producer_expires_when_it_was_idle_for_exactly_the_limit() -> None:
    """The limit itself counts as idle for too long."""
    entry = entry_with(0)
    assert not entry.is_expired(NOW_MS + DAY_MS - 1, DAY_MS)
    assert entry.is_expired(NOW_MS + DAY_MS, DAY_MS)


def test_old_records_do_not_make_a_producer_old() -> None:
    """A backfill of records of 2013 keeps its duplicate detection for as long as any other."""
    header = data_batch(offset=0, sequence=0, timestamp=1_357_016_400_000)
    entry = ProducerEntry(1).with_batch(header, NOW_MS)
    assert entry.last_timestamp == 1_357_016_400_000
    assert not entry.is_expired(NOW_MS + DAY_MS - 1, DAY_MS)


def test_records_of_the_future_keep_a_producer() -> None:
    """A record time later than the append counts instead of it, as in Kafka."""
    header = data_batch(offset=0, sequence=0, timestamp=NOW_MS + DAY_MS)
    entry = ProducerEntry(1).with_batch(header, NOW_MS)
    assert not entry.is_expired(NOW_MS + 2 * DAY_MS - 1, DAY_MS)
    assert entry.is_expired(NOW_MS + 2 * DAY_MS, DAY_MS)


@kafka("ProducerStateManagerTest.testProducersWithOngoingTransactionsDontExpire")
def test_an_open_transaction_keeps_a_producer() -> None:
    """It does not expire."""
    entry = entry_with(0)._replace(transaction_first_offset=0)
    assert not entry.is_expired(NOW_MS + 365 * DAY_MS, DAY_MS)
