"""Transactions that begin with the guard of their verification only, as a log appends them."""

from dataclasses import replace

import pytest

from engine.errors import InvalidTransactionState, SequenceGap, StorageOffline
from engine.log.log import Log
from engine.records.control import ControlType, build_end_marker
from engine.state.verification import VerificationGuard
from engine.types import AppendOrigin
from tests.support.builders import SMALL_CONFIG, World, new_batch
from tests.support.kafka import kafka
from tests.support.logs import CONFIG
from tests.support.time import START_MS

PRODUCER = 7
VERIFYING = replace(SMALL_CONFIG, transaction_verification=True)


@pytest.fixture
def log() -> Log:
    return World(config=VERIFYING).open_log(CONFIG)


def append(
    log: Log,
    sequence: int,
    guard: VerificationGuard | None = None,
    *,
    epoch: int = 0,
    transactional: bool = True,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> int:
    batch = new_batch(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return log.append(batch, guard=guard, origin=origin).base_offset


def end(log: Log, how: ControlType = ControlType.COMMIT, *, epoch: int = 0) -> None:
    marker = build_end_marker(
        how,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        coordinator_epoch=0,
        timestamp=START_MS,
    )
    log.append(marker, origin=AppendOrigin.COORDINATOR)


def verify(log: Log, sequence: int = 0, *, epoch: int = 0) -> VerificationGuard | None:
    return log.producers.start_verification(PRODUCER, sequence=sequence, producer_epoch=epoch)


@kafka("UnifiedLogTest.testTransactionIsOngoingAndVerificationGuard")
def test_only_the_first_batch_of_a_transaction_needs_its_guard(log: Log) -> None:
    """Nothing is written without it; while the transaction is open no guard is issued."""
    with pytest.raises(InvalidTransactionState, match="not verified"):
        append(log, 0)
    assert log.watermarks.log_end_offset == 0
    assert append(log, 0, verify(log)) == 0
    assert verify(log, 1) is None
    assert append(log, 1) == 1
    end(log)
    with pytest.raises(InvalidTransactionState):
        append(log, 2)


def test_a_guard_serves_one_transaction(log: Log) -> None:
    """The first transaction's guard, and a forged one, open no other."""
    first = verify(log)
    append(log, 0, first)
    end(log)
    second = verify(log, 1)
    for wrong in (first, VerificationGuard()):
        with pytest.raises(InvalidTransactionState):
            append(log, 1, wrong)
    assert append(log, 1, second) == 2


@kafka("UnifiedLogTest.testEmptyTransactionStillClearsVerificationGuard")
def test_a_marker_that_came_in_between_clears_the_guard(log: Log) -> None:
    """The transaction was ended before its first batch came: the batch hangs in no other."""
    guard = verify(log)
    end(log, ControlType.ABORT)
    with pytest.raises(InvalidTransactionState):
        append(log, 0, guard)


def test_idempotent_batches_need_no_guard_and_keep_it(log: Log) -> None:
    """Asking again gives the same guard, and it still opens the transaction."""
    guard = verify(log, 1)
    append(log, 0, transactional=False)
    assert verify(log, 1) is guard
    assert append(log, 1, guard) == 1


def test_a_coordinators_data_is_verified_and_a_followers_is_not(log: Log) -> None:
    """What comes with its offsets was verified where it was appended first."""
    with pytest.raises(InvalidTransactionState):
        append(log, 0, origin=AppendOrigin.COORDINATOR)
    assert append(log, 0, origin=AppendOrigin.REPLICATION) == 0
    assert log.watermarks.last_stable_offset == 0


def test_no_batch_overtakes_the_verified_one(log: Log) -> None:
    """The lowest sequence that was announced comes first, in the newest epoch announced."""
    guard = verify(log, 4)
    assert verify(log, 2) is guard
    assert verify(log, 9, epoch=-1) is guard, "an older epoch announces nothing"
    with pytest.raises(SequenceGap) as caught:
        append(log, 4, guard)
    assert caught.value.facts()["expected"] == 2
    assert verify(log, 5, epoch=1) is guard
    assert append(log, 5, guard, epoch=1) == 0


def test_a_closed_log_verifies_nothing(log: Log) -> None:
    """No guard is issued for what cannot be appended."""
    log.close()
    with pytest.raises(StorageOffline):
        verify(log)


def test_after_a_verification_several_batches_may_be_appended_at_once(log: Log) -> None:
    """Only the first one is compared with the sequence that was verified."""
    verify(log, 0)
    with pytest.raises(SequenceGap, match="sequence 0 was expected, 1 was received"):
        append(log, 1, transactional=False)
    batches = [
        new_batch(producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
        for sequence in range(3)
    ]
    assert log.append(bytearray(b"".join(batches))).last_offset == 2
