"""Transactions as producer state sees them: open, decided, unstable, late.

Names in parentheses are rows of Kafka's ProducerStateManagerTest and UnifiedLogTest.
"""

from engine.state.producer_entry import LATE_TRANSACTION_BUFFER_MS
from engine.topic_keys import DAY_MS
from engine.types import (
    AbortedTransaction,
    AppendOrigin,
    CompletedTransaction,
    OffsetMetadata,
)
from tests.support.kafka import kafka
from tests.support.producers import (
    ABORT,
    BATCH_BYTES,
    COMMIT,
    ProducerLog,
    control_batch,
    data_batch,
    first_undecided,
    is_late,
    plain_batch,
)
from tests.support.time import START_MS, ManualClock

TIMEOUT_MS = 900_000


def transactional(log: ProducerLog, producer_id: int, offset: int, sequence: int = 0) -> None:
    """Append one record inside the producer's transaction."""
    log.append(data_batch(producer_id, offset=offset, sequence=sequence, transactional=True))


@kafka("ProducerStateManagerTest.updateProducerTransactionState")
def test_a_marker_completes_what_the_first_batch_opened(log: ProducerLog) -> None:
    """First offset 16, marker 40, window untouched."""
    log.append(data_batch(offset=16, sequence=1, count=4, transactional=True))
    log.append(data_batch(offset=20, sequence=5, count=10, transactional=True))
    assert first_undecided(log.states) == 16
    verdict = log.end_transaction(COMMIT, offset=40)
    assert list(verdict.completed) == [CompletedTransaction(1, 16, 40, is_aborted=False)]
    entry = log.states.entry(1)
    assert entry is not None
    assert (entry.batches[0].first_sequence, entry.last_sequence) == (1, 14)
    assert entry.transaction_first_offset is None


@kafka("ProducerStateManagerTest.testSkipEmptyTransactions")
def test_empty_transactions_complete_nothing(log: ProducerLog) -> None:
    """Of several markers only those of open transactions count."""
    transactional(log, 1, 0)
    assert [txn.first_offset for txn in log.end_transaction(COMMIT, offset=1).completed] == [0]
    assert not log.end_transaction(COMMIT, offset=2).completed
    assert not log.end_transaction(ABORT, offset=3, producer_id=9).completed


def test_one_append_may_end_and_begin_transactions(log: ProducerLog) -> None:
    """A replicated set with batch, marker and batch leaves the second transaction open."""
    log.append(
        control_batch(offset=0),
        data_batch(offset=1, sequence=0, transactional=True),
        origin=AppendOrigin.REPLICATION,
        marker=ABORT,
    )
    assert first_undecided(log.states) == 1


@kafka("ProducerStateManagerTest.testFirstUnstableOffset")
def test_the_first_unstable_offset_follows_the_high_watermark(log: ProducerLog) -> None:
    """Open ones move at markers, unstable ones after them."""
    states = log.states
    transactional(log, 1, 99)
    transactional(log, 2, 105)
    assert (first_undecided(states), states.first_unstable_offset) == (
        99,
        OffsetMetadata(99),
    )
    log.end_transaction(COMMIT, offset=109)
    assert (first_undecided(states), states.first_unstable_offset) == (
        105,
        OffsetMetadata(99),
    )
    states.on_high_watermark(109)
    assert states.first_unstable_offset == OffsetMetadata(99)
    states.on_high_watermark(110)
    assert states.first_unstable_offset == OffsetMetadata(105)
    log.end_transaction(ABORT, offset=112, producer_id=2)
    assert (first_undecided(states), states.first_unstable_offset) == (
        None,
        OffsetMetadata(105),
    )
    states.on_high_watermark(113)
    assert states.first_unstable_offset is None


@kafka("ProducerStateManagerTest.testTxnFirstOffsetMetadataCached")
def test_the_place_of_a_transaction_is_known_from_its_append(log: ProducerLog) -> None:
    """Bytes of the batches before count."""
    log.append(
        plain_batch(offset=50),
        data_batch(offset=51, sequence=0, transactional=True),
        start=OffsetMetadata(50, 40, 1000),
    )
    assert log.states.first_unstable_offset == OffsetMetadata(51, 40, 1000 + BATCH_BYTES)


def test_aborts_are_listed_with_the_oldest_other_transaction(log: ProducerLog) -> None:
    """The worked example of interleaved aborts, as the log and as recovery see it."""
    for replay in (log.append, log.replicate):
        log.states.truncate_fully(0)
        log.aborted.clear()
        replay(data_batch(1, offset=0, sequence=0, count=5, transactional=True))
        replay(plain_batch(offset=5, count=3))
        replay(data_batch(2, offset=8, sequence=0, count=2, transactional=True))
        log.replicate(control_batch(1, offset=29), ABORT)
        replay(data_batch(4, offset=36, sequence=0, count=3, transactional=True))
        log.replicate(control_batch(2, offset=74), ABORT)
        log.replicate(control_batch(4, offset=89), COMMIT)
        assert log.aborted == [
            AbortedTransaction(1, 0, 29, 8),
            AbortedTransaction(2, 8, 74, 36),
        ]
        assert log.states.map_end_offset == 90


def test_an_append_lists_its_aborts_itself(log: ProducerLog) -> None:
    """The last stable offset of a lone abort is past its marker."""
    transactional(log, 1, 10)
    log.end_transaction(ABORT, offset=11)
    assert log.aborted == [AbortedTransaction(1, 10, 11, 12)]


@kafka("ProducerStateManagerTest.testProducerStateAfterFencingAbortMarker")
def test_a_fencing_abort_keeps_the_producer(log: ProducerLog) -> None:
    """It fences the old instance."""
    transactional(log, 1, 0)
    log.end_transaction(ABORT, offset=1, epoch=1)
    entry = log.states.entry(1)
    assert entry is not None
    assert (entry.producer_epoch, entry.batches, entry.transaction_first_offset) == (1, (), None)


@kafka("ProducerStateManagerTest.testProducersWithOngoingTransactionsDontExpire")
def test_a_producer_stays_while_its_transaction_is_open(
    log: ProducerLog, clock: ManualClock
) -> None:
    """However long it takes."""
    transactional(log, 1, 0)
    clock.advance(10 * DAY_MS)
    assert log.states.expire(clock.now_ms()) == 0
    log.end_transaction(COMMIT, offset=1)
    clock.advance(DAY_MS)
    assert log.states.expire(clock.now_ms()) == 1


@kafka("ProducerStateManagerTest.testHasLateTransaction")
def test_a_transaction_is_late_some_minutes_after_its_timeout(log: ProducerLog) -> None:
    """As long as the oldest one is, the log is."""
    states = log.states
    assert not is_late(states, START_MS + DAY_MS, TIMEOUT_MS)
    transactional(log, 1, 0)
    allowed_ms = TIMEOUT_MS + LATE_TRANSACTION_BUFFER_MS
    assert not is_late(states, START_MS + allowed_ms, TIMEOUT_MS)
    assert is_late(states, START_MS + allowed_ms + 1, TIMEOUT_MS)
    log.end_transaction(COMMIT, offset=1)
    assert not is_late(states, START_MS + DAY_MS, TIMEOUT_MS)


def test_a_transaction_without_a_time_is_not_late(log: ProducerLog) -> None:
    """Its age is unknown."""
    log.append(data_batch(offset=0, sequence=0, timestamp=-1, transactional=True))
    assert not is_late(log.states, START_MS, TIMEOUT_MS)
