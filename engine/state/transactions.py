"""The transactions of one log that bound its last stable offset.

A transaction is *ongoing* from its first batch to its marker, and *unreplicated* from then until
the marker is below the high watermark: a decision that could still be lost must not be visible.
Both are sorted by first offset. Mirrors the two maps of Kafka's `ProducerStateManager`.

Not thread-safe: the log's lock guards it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from engine.types import AbortedTransaction, CompletedTransaction, OffsetMetadata


class OpenTransaction(NamedTuple):
    """A producer's transaction and the location of its first batch, if known."""

    first: OffsetMetadata
    producer_id: int


class _Decided(NamedTuple):
    first: OffsetMetadata
    marker_offset: int


class Transactions:
    """Ongoing and unreplicated transactions by first offset.

    Sorted lists: a partition has few transactions at a time, nearly always in order.
    """

    __slots__ = ("_ongoing", "_unreplicated")

    def __init__(self) -> None:
        self._ongoing: list[OpenTransaction] = []
        self._unreplicated: list[_Decided] = []

    def open(self, transaction: OpenTransaction) -> None:
        """Add an ongoing transaction."""
        insort(self._ongoing, transaction, key=_sort_key)

    def copy(self) -> Transactions:
        """Return a copy, to try the changes of an append."""
        copy = Transactions()
        copy._ongoing = [*self._ongoing]
        copy._unreplicated = [*self._unreplicated]
        return copy

    def decide(self, completed: CompletedTransaction) -> AbortedTransaction | None:
        """Complete a transaction; return its transaction index entry if it was aborted."""
        # Before it is completed: the transaction itself is excluded by its producer.
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
        """Drop the unreplicated transactions whose marker is below `offset`."""
        if self._unreplicated:
            self._unreplicated = [
                decided for decided in self._unreplicated if decided.marker_offset >= offset
            ]

    def clear(self) -> None:
        """Drop all transactions."""
        self._ongoing.clear()
        self._unreplicated.clear()

    @property
    def ongoing(self) -> tuple[OpenTransaction, ...]:
        """The open transactions, oldest first."""
        return tuple(self._ongoing)

    @property
    def open_count(self) -> int:
        """The number of open transactions."""
        return len(self._ongoing)

    @property
    def first_unstable(self) -> OffsetMetadata | None:
        """The start of the oldest transaction that is ongoing or unreplicated."""
        if not self._unreplicated:
            return self._ongoing[0].first if self._ongoing else None
        if not self._ongoing:
            return self._unreplicated[0].first
        return min(self._ongoing[0].first, self._unreplicated[0].first)

    def last_stable_offset_for(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset right after the marker.

        That is the start of the oldest open transaction of another producer, or the offset after
        the marker. A transaction that begins after the marker is ignored: one append may hold both.
        Call it before the transaction is completed. Transaction index entries store this offset: a
        reader that stays below it needs no later entries.
        """
        for transaction in self._ongoing:
            if transaction.first.offset > completed.last_offset:
                break
            if transaction.producer_id != completed.producer_id:
                return transaction.first.offset
        return completed.last_offset + 1


def _sort_key(transaction: OpenTransaction) -> tuple[int, int]:
    return transaction.first.offset, transaction.producer_id
