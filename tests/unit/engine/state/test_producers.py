"""Idempotence: what a log accepts from its producers, and what counts as a retry.

Names in parentheses are rows of Kafka's ProducerStateManagerTest and UnifiedLogTest.
"""

import logging

import pytest

from engine.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    ProducerFenced,
    SequenceGap,
)
from engine.state.producer_verdict import NOTHING_TO_APPLY, Accepted, Duplicate
from engine.topic_keys import DAY_MS
from engine.types import INT32_MAX, AppendOrigin
from tests.support.kafka import kafka
from tests.support.producers import (
    ABORT,
    COMMIT,
    ProducerLog,
    control_batch,
    data_batch,
    first_undecided,
    plain_batch,
)
from tests.support.time import START_MS, ManualClock

CLIENT = AppendOrigin.CLIENT
REPLICATION = AppendOrigin.REPLICATION


def refused_sequence(
    log: ProducerLog, *, offset: int, sequence: int, count: int = 1, epoch: int = 0
) -> tuple[object, object]:
    """Append a batch that must be refused; return the expected and the received sequence."""
    with pytest.raises(SequenceGap) as caught:
        log.append(data_batch(offset=offset, sequence=sequence, count=count, epoch=epoch))
    facts = caught.value.facts()
    assert (facts["producer_id"], facts["producer_epoch"]) == (1, epoch)
    return facts["expected"], facts["received"]


def test_plain_batches_cost_nothing(log: ProducerLog) -> None:
    """Without a producer id nothing is staged, for every origin."""
    for origin in AppendOrigin:
        assert log.append(plain_batch(offset=0, count=3), origin=origin) is NOTHING_TO_APPLY
    assert log.states.is_empty
    assert log.states.map_end_offset == 3


@kafka("ProducerStateManagerTest.testBasicIdMapping")
def test_sequences_follow_one_another(log: ProducerLog) -> None:
    """The next is taken, a repeat a duplicate, a gap refused."""
    log.append(data_batch(offset=0, sequence=0))
    log.append(data_batch(offset=1, sequence=1))
    assert log.is_duplicate(data_batch(offset=2, sequence=1))
    assert refused_sequence(log, offset=2, sequence=5) == (2, 5)
    log.append(data_batch(offset=2, sequence=0, epoch=1))
    with pytest.raises(ProducerFenced) as caught:
        log.append(data_batch(offset=3, sequence=0, epoch=0))
    assert caught.value.facts() == {"producer_id": 1, "current_epoch": 1, "epoch": 0}


@kafka("UnifiedLogTest.testAllowNonZeroSequenceOnFirstAppendNonZeroEpoch")
def test_an_unknown_producer_may_start_anywhere(log: ProducerLog) -> None:
    """Its state may have expired."""
    log.append(data_batch(offset=0, sequence=17, epoch=3))
    assert refused_sequence(log, offset=1, sequence=19, epoch=3) == (18, 19)


def test_an_unknown_producer_is_held_to_its_own_first_batch(log: ProducerLog) -> None:
    """Within one append a gap is refused even if the producer is new."""
    headers = (data_batch(offset=0, sequence=5), data_batch(offset=1, sequence=7))
    with pytest.raises(SequenceGap):
        log.append(*headers)
    assert log.states.is_empty


@kafka("ProducerStateManagerTest.testBasicIdMapping")
def test_a_new_epoch_starts_at_zero(log: ProducerLog) -> None:
    """A known producer cannot continue its sequence in another epoch."""
    log.append(data_batch(offset=0, sequence=0))
    assert refused_sequence(log, offset=1, sequence=1, epoch=1) == (0, 1)
    log.append(data_batch(offset=1, sequence=0, epoch=1))


@kafka(
    "ProducerStateManagerTest.testProducerSequenceWrapAround",
    "ProducerStateManagerTest.testProducerSequenceInvalidWrapAround",
)
def test_sequences_wrap(log: ProducerLog) -> None:
    """After 2**31 - 1 comes 0 (testProducerSequenceWrapAround, …InvalidWrapAround)."""
    log.append(data_batch(offset=0, sequence=INT32_MAX))
    assert refused_sequence(log, offset=1, sequence=1) == (0, 1)
    log.append(data_batch(offset=1, sequence=0))
    entry = log.states.entry(1)
    assert entry is not None
    assert (entry.batches[0].first_sequence, entry.last_sequence) == (INT32_MAX, 0)


@kafka("UnifiedLogTest.testDuplicateAppends")
@pytest.mark.parametrize("retried", range(1, 6))
def test_a_retry_of_the_last_five_is_answered_with_the_first_offsets(
    log: ProducerLog, retried: int
) -> None:
    """Nothing changes, and the answer is the original one."""
    for number in range(6):
        timestamp = START_MS + number
        log.append(data_batch(offset=number * 3, sequence=number * 3, count=3, timestamp=timestamp))
    before = log.states.entry(1)
    verdict = log.append(data_batch(offset=18, sequence=retried * 3, count=3))
    assert verdict == Duplicate(retried * 3, retried * 3 + 2, START_MS + retried)
    assert log.states.entry(1) is before
    assert log.states.map_end_offset == 18


@kafka("UnifiedLogTest.testDuplicateAppends")
def test_a_retry_from_before_the_window_is_a_gap(log: ProducerLog) -> None:
    """The sixth-newest batch is no longer remembered."""
    for number in range(6):
        log.append(data_batch(offset=number, sequence=number))
    assert refused_sequence(log, offset=6, sequence=0) == (6, 0)


@kafka("UnifiedLogTest.testDuplicateAppends")
def test_a_partial_overlap_is_a_gap(log: ProducerLog) -> None:
    """A batch that repeats a part of another one is refused."""
    log.append(data_batch(offset=0, sequence=0, count=4))
    assert refused_sequence(log, offset=4, sequence=2, count=4) == (4, 2)


def test_batches_of_one_append_are_a_duplicate_together(log: ProducerLog) -> None:
    """A retry of one append gets its first and last offset."""
    first = data_batch(offset=0, sequence=0, count=2)
    second = data_batch(2, offset=2, sequence=7, count=3, timestamp=START_MS + 9)
    log.append(first, second)
    assert log.append(first, second) == Duplicate(0, 4, START_MS + 9)


def test_a_duplicate_never_hides_a_new_batch(log: ProducerLog) -> None:
    """An append with a known part is refused as a whole: nothing of it may get lost."""
    known = data_batch(offset=0, sequence=0)
    log.append(known)
    with pytest.raises(SequenceGap):
        log.append(known, data_batch(offset=1, sequence=1))
    with pytest.raises(SequenceGap):
        log.append(known, plain_batch(offset=1))


def test_known_batches_from_different_appends_are_no_duplicate(log: ProducerLog) -> None:
    """Batches that are apart in the log were not appended together and have no common range."""
    first, second = data_batch(offset=0, sequence=0), data_batch(offset=5, sequence=1)
    log.append(first)
    log.append(second)
    with pytest.raises(SequenceGap):
        log.append(first, second)


@kafka("ProducerStateManagerTest.testPrepareUpdateDoesNotMutate")
def test_judging_changes_nothing(log: ProducerLog) -> None:
    """Staged changes are invisible until they are applied."""
    verdict = log.states.judge((data_batch(offset=0, sequence=0, transactional=True),), CLIENT)
    assert isinstance(verdict, Accepted)
    assert log.states.is_empty
    assert log.states.first_unstable_offset is None
    log.states.apply(verdict)
    assert log.states.entry(1) == verdict.entries[1]


def test_batches_of_one_append_are_judged_one_after_the_other(log: ProducerLog) -> None:
    """The second batch continues the first, which is not published yet."""
    log.append(data_batch(offset=0, sequence=0), data_batch(offset=1, sequence=1, count=2))
    entry = log.states.entry(1)
    assert entry is not None
    assert (entry.batches[0].first_sequence, entry.last_sequence) == (0, 2)


@kafka("ProducerStateManagerTest.testSequenceNotValidatedForGroupMetadataTopic")
def test_the_coordinator_repeats_sequences(log: ProducerLog) -> None:
    """Its batches are not duplicates."""
    for offset in range(3):
        verdict = log.append(
            data_batch(offset=offset, sequence=-1, transactional=True),
            origin=AppendOrigin.COORDINATOR,
        )
        assert isinstance(verdict, Accepted)


@kafka("ProducerStateManagerTest.testAcceptAppendWithSequenceGapsOnReplica")
@pytest.mark.parametrize("sequence", [0, 5, 40])
def test_a_replica_takes_any_sequence(log: ProducerLog, sequence: int) -> None:
    """Gaps in the log stay there."""
    log.replicate(data_batch(offset=0, sequence=5))
    log.replicate(data_batch(offset=1, sequence=sequence))
    entry = log.states.entry(1)
    assert entry is not None
    assert entry.last_sequence == sequence


def test_a_replica_takes_an_older_epoch_and_says_so(
    log: ProducerLog, caplog: pytest.LogCaptureFixture
) -> None:
    """The state follows the log, with a warning."""
    log.replicate(data_batch(offset=0, sequence=0, epoch=2))
    with caplog.at_level(logging.WARNING):
        log.replicate(data_batch(offset=1, sequence=0, epoch=1))
    assert "epoch 1 of producer 1 at offset 1 is older than 2" in caplog.text
    entry = log.states.entry(1)
    assert entry is not None
    assert entry.producer_epoch == 1


@kafka("ProducerStateManagerTest.testAppendTxnMarkerWithNoProducerState")
def test_a_marker_alone_makes_a_producer_known(log: ProducerLog) -> None:
    """Its epoch counts and its next batch is the first."""
    log.end_transaction(COMMIT, offset=0, epoch=5)
    with pytest.raises(ProducerFenced):
        log.append(data_batch(offset=1, sequence=0, epoch=4))
    assert refused_sequence(log, offset=1, sequence=17, epoch=5) == (0, 17)
    log.append(data_batch(offset=1, sequence=0, epoch=5))


@kafka(
    "ProducerStateManagerTest.testControlRecordBumpsProducerEpoch",
    "ProducerStateManagerTest.testOutOfSequenceAfterControlRecordEpochBump",
)
@pytest.mark.parametrize("epoch", [1, 2])
def test_a_marker_of_a_higher_epoch_resets_the_sequences(log: ProducerLog, epoch: int) -> None:
    """The window is empty."""
    log.append(data_batch(offset=0, sequence=0, transactional=True))
    log.append(data_batch(offset=1, sequence=1, transactional=True))
    log.end_transaction(ABORT, offset=2, epoch=1)
    entry = log.states.entry(1)
    assert entry is not None
    assert (entry.batches, entry.last_sequence) == ((), -1)
    assert entry.transaction_first_offset is None
    assert refused_sequence(log, offset=3, sequence=2, epoch=epoch) == (0, 2)
    log.append(data_batch(offset=3, sequence=0, epoch=epoch))


@kafka("ProducerStateManagerTest.testOldEpochForControlRecord")
def test_a_marker_of_an_older_epoch_is_refused(log: ProducerLog) -> None:
    """The fenced instance cannot end a transaction."""
    log.append(data_batch(offset=0, sequence=0, epoch=2))
    with pytest.raises(ProducerFenced):
        log.end_transaction(COMMIT, offset=1, epoch=1)


@kafka("ProducerStateManagerTest.testCoordinatorFencing")
def test_an_older_coordinator_is_refused(log: ProducerLog) -> None:
    """Equal and higher epochs pass, a lower one is fenced."""
    log.append(data_batch(offset=0, sequence=0))
    log.end_transaction((COMMIT, 1), offset=1)
    log.end_transaction((COMMIT, 1), offset=2)
    log.end_transaction((COMMIT, 2), offset=3)
    with pytest.raises(CoordinatorFenced) as caught:
        log.end_transaction((COMMIT, 1), offset=4)
    assert caught.value.facts() == {
        "producer_id": 1,
        "current_coordinator_epoch": 2,
        "coordinator_epoch": 1,
    }


@kafka("LogLoaderTest.testRecoverAfterNonMonotonicCoordinatorEpochWrite")
def test_recovery_takes_an_older_coordinator(log: ProducerLog) -> None:
    """Batches in the log are accepted."""
    log.replicate(control_batch(offset=0), (ABORT, 2))
    log.replicate(control_batch(offset=1, timestamp=START_MS + 5), (ABORT, 1))
    entry = log.states.entry(1)
    assert entry is not None
    assert (entry.coordinator_epoch, entry.last_timestamp) == (1, START_MS + 5)


@kafka("ProducerStateManagerTest.testNonTransactionalAppendWithOngoingTransaction")
def test_a_batch_outside_the_open_transaction_is_refused(log: ProducerLog) -> None:
    """It must end first."""
    log.append(data_batch(offset=0, sequence=0, transactional=True))
    with pytest.raises(InvalidTransactionState) as caught:
        log.append(data_batch(offset=1, sequence=1))
    assert caught.value.facts() == {"producer_id": 1, "transaction_first_offset": 0}


def test_recovery_takes_a_batch_outside_the_open_transaction(
    log: ProducerLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Refusing to start would lose more than it saves; the transaction stays open."""
    log.replicate(data_batch(offset=0, sequence=0, transactional=True))
    with caplog.at_level(logging.WARNING):
        log.replicate(data_batch(offset=1, sequence=1))
    assert "the batch at 1 is not part of it" in caplog.text
    assert first_undecided(log.states) == 0


@kafka("ProducerStateManagerTest.testAppendEmptyControlBatch")
def test_an_empty_control_batch_does_nothing(log: ProducerLog) -> None:
    """What compaction emptied leaves the transaction open."""
    log.append(data_batch(offset=0, sequence=0, transactional=True))
    verdict = log.append(control_batch(offset=1), origin=AppendOrigin.COORDINATOR)
    assert isinstance(verdict, Accepted)
    assert not verdict.completed
    assert first_undecided(log.states) == 0


@kafka("ProducerStateManagerTest.testPidExpirationTimeout")
def test_an_idle_producer_is_forgotten_and_may_go_on(log: ProducerLog, clock: ManualClock) -> None:
    """After a day its next sequence, or any other, is taken."""
    log.append(data_batch(1, offset=0, sequence=0))
    clock.advance(1)
    log.append(data_batch(2, offset=1, sequence=0))
    clock.advance(DAY_MS - 1)
    assert [entry.producer_id for entry in log.states.active_producers(clock.now_ms())] == [2]
    assert log.states.expire(clock.now_ms()) == 1
    assert log.states.entry(1) is None
    log.append(data_batch(1, offset=2, sequence=1))
    active = log.states.active_producers(clock.now_ms())
    assert [entry.producer_id for entry in active] == [1, 2]


def test_a_backfill_keeps_its_duplicate_detection(log: ProducerLog, clock: ManualClock) -> None:
    """Record times of 2013 do not expire a producer that is appending now."""
    log.append(data_batch(offset=0, sequence=0, timestamp=1_357_016_400_000))
    clock.advance(DAY_MS - 1)
    assert log.states.expire(clock.now_ms()) == 0
    assert log.is_duplicate(data_batch(offset=1, sequence=0))


def test_the_highest_producer_id_is_never_forgotten(log: ProducerLog, clock: ManualClock) -> None:
    """New ids must exceed every id seen, expired ones too."""
    assert log.states.highest_producer_id == -1
    log.append(data_batch(7, offset=0, sequence=0))
    log.append(data_batch(3, offset=1, sequence=0))
    clock.advance(DAY_MS)
    assert log.states.expire(clock.now_ms()) == 2
    assert log.states.highest_producer_id == 7
