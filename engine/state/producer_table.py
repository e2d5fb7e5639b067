"""The producers of one log by id: bounded, and the one that has been idle for longest goes first.

An id is the client's to choose, so without a bound a client could have a log remember as many as it
likes. What goes is what expires anyway: its next append is accepted like that of an unknown
producer, and only a repetition is no longer recognised.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from engine.state.producer_entry import ProducerEntry


class ProducerTable(OrderedDict[int, ProducerEntry]):
    """In the order of their last append. Not thread-safe."""

    def __init__(self, max_producers: int) -> None:
        super().__init__()
        self._max_producers = max_producers

    def publish(self, entries: Mapping[int, ProducerEntry]) -> None:
        """Take these as the ones that appended last, and forget others beyond the limit."""
        for producer_id, entry in entries.items():
            self[producer_id] = entry
            self.move_to_end(producer_id)
        if len(self) > self._max_producers:
            self._evict()

    def _evict(self) -> None:
        """Forget the idle; a producer with an open transaction is needed until that ends."""
        for _ in range(len(self)):
            producer_id, entry = next(iter(self.items()))
            if entry.transaction_first_offset is None:
                del self[producer_id]
                if len(self) <= self._max_producers:
                    return
            else:
                self.move_to_end(producer_id)
