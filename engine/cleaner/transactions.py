"""Tracks transactions for compaction, during a walk over a log in offset order.

A batch of an aborted transaction is removed at once. A marker must stay until no batch of its
transaction is left; otherwise readers and producer state would see a transaction without an end.
Mirrors Kafka's `CleanedTransactionMetadata`. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from engine.records.batch import BatchView
from engine.records.control import ControlType, parse_control_type
from engine.records.header import BatchHeader
from engine.types import AbortedTransaction


class PassedTransactions:
    """Takes every batch once, ascending, and aborted transactions before their first batch."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, int, AbortedTransaction]] = []  # a heap by first offset
        self._expected: set[int] = set()  # by the offset of the marker
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer; the marker follows
        self._seen_aborted: set[int] = set()
        self._seen_committed: set[int] = set()
        self.still_aborted: list[AbortedTransaction] = []
        """Aborted transactions whose batches and marker were passed; the owner empties the list."""

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Announce aborted transactions; one that spans segments may be announced repeatedly."""
        for transaction in aborted:
            if transaction.last_offset not in self._expected:
                self._expected.add(transaction.last_offset)
                entry = (transaction.first_offset, transaction.last_offset, transaction)
                heapq.heappush(self._coming, entry)

    def pass_data(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        if producer_id in self._aborted:
            self._seen_aborted.add(producer_id)
            return True
        self._seen_committed.add(producer_id)
        return False

    def pass_control(self, batch: BatchView) -> bool:
        """Return whether the control batch can go: no data of its transaction is left."""
        header = batch.header
        self._begin_up_to(header.last_offset)
        record = next(batch.records(), None)
        if record is None:
            return True  # emptied by an earlier cleaning
        control_type = parse_control_type(record.key)
        if control_type is ControlType.ABORT:
            return not self._end_aborted(header.producer_id)
        if control_type is ControlType.COMMIT:
            was_seen = header.producer_id in self._seen_committed
            self._seen_committed.discard(header.producer_id)
            return not was_seen
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, _, transaction = heapq.heappop(self._coming)
            self._aborted[transaction.producer_id] = transaction

    def _end_aborted(self, producer_id: int) -> bool:
        """End the producer's aborted transaction; return whether a batch of it was passed."""
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._seen_aborted:
            return False
        self._seen_aborted.discard(producer_id)
        self.still_aborted.append(transaction)
        return True
