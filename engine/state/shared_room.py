"""A limit that all logs share, and the rest of it.

Logs take from it under their own locks and give nothing back: another thread counts the real use
when the rest is low.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Final

from engine.errors import Overloaded

_LOW_PART: Final = 10
"""The use is counted again when a tenth of the last rest is left."""


class SharedRoom:
    """The rest of a limit of all logs together. Thread-safe; its lock is a leaf."""

    def __init__(
        self, name: str, limit: int = sys.maxsize, on_low: Callable[[], object] = lambda: None
    ) -> None:
        """`on_low` is called under a log's lock; it schedules a call of `restock`."""
        self.limit: Final = limit
        self.name: Final = name
        self._on_low = on_low
        self._lock = threading.Lock()
        self._left = limit
        self._low = limit // _LOW_PART
        self._is_asked = False

    def take(self, amount: int) -> None:
        """Take an amount; raises Overloaded if less is left."""
        with self._lock:
            has_room = amount <= self._left
            if has_room:
                self._left -= amount
            asks = not self._is_asked and (not has_room or self._left <= self._low)
            self._is_asked = self._is_asked or asks
        if asks:
            self._on_low()
        if not has_room:
            raise Overloaded(
                f"{self.name} ({self.limit}) is reached in all logs together",
                limit=self.name,
                limit_value=self.limit,
            )

    def restock(self, held: int) -> None:
        """Set the rest from the counted use."""
        with self._lock:
            self._left = max(0, self.limit - held)
            self._low = self._left // _LOW_PART
            self._is_asked = False
