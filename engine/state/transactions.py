"""The transactions of one log that hold its last stable offset down.

A transaction is *ongoing* from its first batch to its marker and *unreplicated* from then until the
marker lies below the high watermark: what is decided and could still be lost must not be shown.
Both are in order of their first offsets. Mirrors the two maps of Kafka's `ProducerStateManager`.

Not thread-safe: the log's lock guards it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from engine.types import AbortedTransaction, CompletedTransaction, OffsetMetadata


class OpenTransaction(NamedTuple):
    """A producer's transaction and where its first batch lies, as far as that is known."""

    first: OffsetMetadata
    producer_id: int


class _Decided(NamedTuple):
    first: OffsetMetadata
    marker_offset: int


class Transactions:
    """Ongoing and unreplicated transactions by first offset.

    Sorted lists: one partition sees few transactions at a time, nearly always in order.
    """

    __slots__ = ("_ongoing", "_unreplicated")

    def __init__(self) -> None:
        self._ongoing: list[OpenTransaction] = []
        self._unreplicated: list[_Decided] = []

    def open(self, transaction: OpenTransaction) -> None:
        """Count a transaction as ongoing."""
        insort(self._ongoing, transaction, key=_sort_key)

    def copy(self) -> Transactions:
        """Return the same transactions, to see what an append would change."""
        copy = Transactions()
        copy._ongoing = [*self._ongoing]
        copy._unreplicated = [*self._unreplicated]
        return copy

    def decide(self, completed: CompletedTransaction) -> AbortedTransaction | None:
        """Complete a transaction; return its entry for the transaction index, if aborted."""
        # Before it is completed, because its own producer does not count.
        last_stable_offset = self.last_stable_offset_for(completed)
        self.complete(completed)
        if not completed.is_aborted:
            return None
        return AbortedTransaction(
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            last_stable_offset,
        )

    def complete(self, completed: CompletedTransaction) -> None:
        """Move an ongoing transaction to the unreplicated ones; its marker is in the log."""
        sought = (completed.first_offset, completed.producer_id)
        transaction = self._ongoing.pop(bisect_left(self._ongoing, sought, key=_sort_key))
        assert _sort_key(transaction) == sought, (transaction, completed)
        insort(self._unreplicated, _Decided(transaction.first, completed.last_offset))

    def forget_decided_below(self, offset: int) -> None:
        """Drop the unreplicated transactions whose marker lies below `offset`."""
        if self._unreplicated:
            self._unreplicated = [
                decided for decided in self._unreplicated if decided.marker_offset >= offset
            ]

    def clear(self) -> None:
        """Forget all of them."""
        self._ongoing.clear()
        self._unreplicated.clear()

    @property
    def ongoing(self) -> tuple[OpenTransaction, ...]:
        """The open transactions, oldest first."""
        return tuple(self._ongoing)

    @property
    def open_count(self) -> int:
        """How many transactions are open."""
        return len(self._ongoing)

    @property
    def first_unstable(self) -> OffsetMetadata | None:
        """Where the oldest transaction begins that is open, or decided and not yet replicated."""
        if not self._unreplicated:
            return self._ongoing[0].first if self._ongoing else None
        if not self._ongoing:
            return self._unreplicated[0].first
        return min(self._ongoing[0].first, self._unreplicated[0].first)

    def last_stable_offset_for(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset as it is right after the marker.

        That is where the oldest open transaction of another producer begins, or the offset after
        the marker. A transaction that begins after the marker does not count: one append may hold
        both. Must be asked before the transaction is completed here. This is what an entry of the
        transaction index stores: no later entry matters to a reader that stays below it.
        """
        for transaction in self._ongoing:
            if transaction.first.offset > completed.last_offset:
                break
            if transaction.producer_id != completed.producer_id:
                return transaction.first.offset
        return completed.last_offset + 1


def _sort_key(transaction: OpenTransaction) -> tuple[int, int]:
    return transaction.first.offset, transaction.producer_id
