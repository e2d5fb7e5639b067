"""Which transactions hold the last stable offset down, and for how long."""

from engine.state.transactions import OpenTransaction, Transactions
from engine.types import CompletedTransaction, OffsetMetadata
from tests.support.kafka import kafka


def opened(*first_offsets: int) -> Transactions:
    """Transactions of producers 1, 2, … that begin at these offsets."""
    transactions = Transactions()
    for producer_id, offset in enumerate(first_offsets, start=1):
        transactions.open(OpenTransaction(OffsetMetadata(offset), producer_id))
    return transactions


def test_without_transactions_everything_is_stable() -> None:
    """There is no unstable offset and no open transaction."""
    transactions = opened()
    assert transactions.first_unstable is None
    assert transactions.ongoing == ()


def test_the_oldest_open_transaction_is_the_first_unstable() -> None:
    """Transactions are ordered by first offset, however they came."""
    transactions = opened(30, 10, 20)
    assert [open_.first.offset for open_ in transactions.ongoing] == [10, 20, 30]
    assert transactions.first_unstable == OffsetMetadata(10)


def test_a_decided_transaction_stays_unstable_until_its_marker_is_replicated() -> None:
    """The marker must be below the high watermark, not at it."""
    transactions = opened(10)
    transactions.complete(CompletedTransaction(1, 10, 15, is_aborted=False))
    assert transactions.ongoing == ()
    transactions.forget_decided_below(15)
    assert transactions.first_unstable == OffsetMetadata(10)
    transactions.forget_decided_below(16)
    assert transactions.first_unstable is None


def test_the_first_unstable_is_the_lower_of_open_and_decided() -> None:
    """Neither an older decided nor an older open transaction is missed."""
    transactions = opened(10, 20)
    transactions.complete(CompletedTransaction(1, 10, 25, is_aborted=True))
    assert transactions.first_unstable == OffsetMetadata(10)
    transactions.forget_decided_below(26)
    transactions.open(OpenTransaction(OffsetMetadata(30), 3))
    transactions.complete(CompletedTransaction(3, 30, 31, is_aborted=True))
    assert transactions.first_unstable == OffsetMetadata(20)


def test_the_place_of_the_first_batch_is_kept() -> None:
    """Segment and position of the start are still known when the transaction is decided."""
    place = OffsetMetadata(10, 5, 700)
    transactions = Transactions()
    transactions.open(OpenTransaction(place, 1))
    transactions.complete(CompletedTransaction(1, 10, 15, is_aborted=False))
    assert transactions.first_unstable == place


@kafka("ProducerStateManagerTest.testLastStableOffsetCompletedTxn")
def test_the_last_stable_offset_of_a_completion_leaves_its_own_producer_out() -> None:
    """It is the oldest other transaction, or the offset after the marker."""
    transactions = opened(10, 20)
    first = CompletedTransaction(1, 10, 30, is_aborted=True)
    second = CompletedTransaction(2, 20, 31, is_aborted=True)
    assert transactions.last_stable_offset_for(first) == 20
    assert transactions.last_stable_offset_for(second) == 10
    transactions.complete(first)
    assert transactions.last_stable_offset_for(second) == 32


def test_two_transactions_at_one_offset_are_distinguished() -> None:
    """Completing one of them leaves the other open, even if a snapshot had both."""
    transactions = opened(10, 10)
    transactions.complete(CompletedTransaction(2, 10, 12, is_aborted=False))
    assert [open_.producer_id for open_ in transactions.ongoing] == [1]


def test_clearing_forgets_open_and_decided() -> None:
    """Afterwards everything is stable."""
    transactions = opened(10, 20)
    transactions.complete(CompletedTransaction(1, 10, 25, is_aborted=True))
    transactions.clear()
    assert transactions.first_unstable is None
