"""The producers of one log by id, with a limit: the longest idle one is removed first.

Clients choose their ids, so without a limit a client could fill the memory. Removing a producer has
the effect of its expiry: its next append is accepted like that of an unknown producer, and its
retries are no longer recognised.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from engine.state.producer_entry import ProducerEntry
from engine.state.producer_windows import Windows, with_windows
from engine.state.transactions import OpenTransaction


class ProducerTable(OrderedDict[int, ProducerEntry]):
    """Producers in the order of their last append. Not thread-safe."""

    def __init__(self, max_producers: int) -> None:
        super().__init__()
        self._max_producers = max_producers

    def publish(self, entries: Mapping[int, ProducerEntry]) -> None:
        """Add these as the ones that appended last; remove others beyond the limit."""
        for producer_id, entry in entries.items():
            self[producer_id] = entry
            self.move_to_end(producer_id)
        if len(self) > self._max_producers:
            self._evict()

    def reach_back(self, windows: Windows) -> None:
        """Add older batches from the duplicate windows to the same producers."""
        for producer_id, entry in self.items():
            self[producer_id] = with_windows(entry, windows)

    def check_invariants(self, ongoing: Sequence[OpenTransaction], highest_id: int) -> None:
        """Fail unless entries and open transactions agree."""
        by_entries = {
            (entry.transaction_first_offset, entry.producer_id)
            for entry in self.values()
            if entry.transaction_first_offset is not None
        }
        by_transactions = {(open_.first.offset, open_.producer_id) for open_ in ongoing}
        assert by_entries == by_transactions, (by_entries, by_transactions)
        assert list(ongoing) == sorted(ongoing), ongoing
        for producer_id, entry in self.items():
            assert entry.producer_id == producer_id, (producer_id, entry)
            assert producer_id <= highest_id, (producer_id, highest_id)

    def _evict(self) -> None:
        """Remove idle producers beyond the limit, but none with an open transaction."""
        for _ in range(len(self)):
            producer_id, entry = next(iter(self.items()))
            if entry.transaction_first_offset is None:
                del self[producer_id]
                if len(self) <= self._max_producers:
                    return
            else:
                self.move_to_end(producer_id)
