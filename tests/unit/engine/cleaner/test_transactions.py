"""Which batches belong to aborted transactions, and which markers have lost their meaning."""

from typing import Any

from engine.cleaner.offset_map import PassedTransactions
from engine.records.batch import BatchView
from engine.records.builder import encode_batch
from engine.records.control import ControlType, build_end_marker
from engine.records.header import CONTROL_MASK, BatchHeader
from engine.records.record import Record
from engine.types import AbortedTransaction
from tests.support.compaction import view

A, B = 1, 2


def data(base_offset: int, producer_id: int = A) -> BatchHeader:
    options: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    batch = view(("key", "value"), base_offset=base_offset, producer_id=producer_id, **options)
    return batch.header


def marker(offset: int, kind: ControlType = ControlType.ABORT, producer_id: int = A) -> BatchView:
    return BatchView(
        build_end_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=1,
            base_offset=offset,
        )
    )


def expecting(*aborted: AbortedTransaction) -> PassedTransactions:
    passed = PassedTransactions()
    passed.expect(aborted)
    return passed


def test_data_of_an_aborted_transaction_is_recognised() -> None:
    """From its first offset to its marker, and only that producer's."""
    passed = expecting(AbortedTransaction(A, 5, 8, 9))
    assert not passed.pass_data(data(4))
    assert not passed.pass_data(view(("plain", "value"), base_offset=5).header)
    assert passed.pass_data(data(6))
    assert not passed.pass_data(data(7, B))
    assert not passed.pass_control(marker(8))
    assert not passed.pass_data(data(9))


def test_an_abort_marker_is_needed_while_data_was_there() -> None:
    """If it had data, it stays with its index entry; otherwise it can go."""
    first, second = AbortedTransaction(A, 0, 2, 3), AbortedTransaction(A, 3, 4, 5)
    passed = expecting(first, second)
    passed.pass_data(data(0))
    assert not passed.pass_control(marker(2))
    assert passed.still_aborted == [first]
    assert passed.pass_control(marker(4))
    assert passed.still_aborted == [first]


def test_a_commit_marker_is_needed_while_data_was_there() -> None:
    """The same for commits, producer by producer."""
    passed = PassedTransactions()
    passed.pass_data(data(0, A))
    assert passed.pass_control(marker(1, ControlType.COMMIT, B))
    assert not passed.pass_control(marker(2, ControlType.COMMIT, A))
    assert passed.pass_control(marker(3, ControlType.COMMIT, A))


def test_a_transaction_announced_twice_counts_once() -> None:
    """A transaction that spans segments is announced for each of them."""
    aborted = AbortedTransaction(A, 0, 4, 5)
    passed = expecting(aborted, aborted)
    passed.pass_data(data(0))
    passed.expect([aborted])
    assert not passed.pass_control(marker(4))
    assert not passed.pass_data(data(5)), "the second announcement must not begin it again"


def test_other_control_batches_keep_their_meaning_and_empty_ones_have_none() -> None:
    """Only ends of transactions are judged; a control batch without a record was cleaned before."""
    passed = PassedTransactions()
    header = marker(0).header
    change = Record(0, 1, b"\0\0\0\2", b"\0\0\0\0\0\0", ())
    assert not passed.pass_control(BatchView(encode_batch(header, [change])))
    assert header.attributes & CONTROL_MASK
    assert passed.pass_control(BatchView(encode_batch(header, [])))
