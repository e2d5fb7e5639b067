"""Guards that prove a transaction was verified before its first batch."""

from engine.state.verification import Verifications
from tests.support.kafka import kafka


def started(**changes: int) -> Verifications:
    verifications = Verifications()
    arguments = {"sequence": 5, "producer_epoch": 1, "now_ms": 1000} | changes
    verifications.start(7, **arguments)
    return verifications


@kafka("ProducerStateManagerTest.testEntryForVerification")
def test_a_guard_is_the_same_until_it_is_cleared() -> None:
    """Asking again gives the same guard, after clearing a new one."""
    verifications = Verifications()
    first = verifications.start(7, sequence=0, producer_epoch=0, now_ms=1)
    assert verifications.start(7, sequence=0, producer_epoch=0, now_ms=2) is first
    verifications.clear(7)
    assert verifications.start(7, sequence=0, producer_epoch=0, now_ms=3) is not first


def test_only_the_very_guard_proves_a_verification() -> None:
    """Neither None, nor another producer's guard, nor a cleared one is a proof."""
    verifications = Verifications()
    guard = verifications.start(7, sequence=0, producer_epoch=0, now_ms=1)
    other = verifications.start(8, sequence=0, producer_epoch=0, now_ms=1)
    assert verifications.is_proved_by(7, guard)
    assert not verifications.is_proved_by(7, other)
    assert not verifications.is_proved_by(7, None)
    verifications.clear(7)
    assert not verifications.is_proved_by(7, guard)
    assert not verifications.is_proved_by(7, None)


@kafka("ProducerStateManagerTest.testSequenceAndEpochInVerificationEntry")
def test_a_lower_sequence_of_the_epoch_is_remembered() -> None:
    """Requests may overtake each other."""
    verifications = started()
    verifications.start(7, sequence=6, producer_epoch=1, now_ms=1)
    assert verifications.lowest_sequence(7) == 5
    verifications.start(7, sequence=3, producer_epoch=1, now_ms=1)
    assert verifications.lowest_sequence(7) == 3


def test_a_higher_epoch_takes_over_and_a_lower_one_is_ignored() -> None:
    """The sequence remembered is that of the newest epoch."""
    verifications = started()
    verifications.start(7, sequence=9, producer_epoch=2, now_ms=1)
    assert verifications.lowest_sequence(7) == 9
    verifications.start(7, sequence=0, producer_epoch=1, now_ms=1)
    assert verifications.lowest_sequence(7) == 9


def test_without_a_verification_there_is_no_sequence() -> None:
    """Clearing a producer that has none does no harm."""
    verifications = Verifications()
    verifications.clear(7)
    assert verifications.lowest_sequence(7) is None


@kafka("ProducerStateManagerTest.testVerificationStateEntryExpiration")
def test_a_verification_expires_by_its_age_alone() -> None:
    """Asking again does not make it younger."""
    verifications = started()
    verifications.start(7, sequence=4, producer_epoch=1, now_ms=1500)
    verifications.expire(1999, 1000)
    assert verifications.lowest_sequence(7) == 4
    verifications.expire(2000, 1000)
    assert verifications.lowest_sequence(7) is None
