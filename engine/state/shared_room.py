"""A limit that all logs share: what is counted, and how much more there may be.

Logs take from the room under their own locks, and give nothing back: what is really held is counted
on another thread, when the room may come to an end.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Final

from engine.errors import Overloaded

_LOW_PART: Final = 10
"""All is counted again when a tenth is left of what there was at the last count."""


class SharedRoom:
    """How much of something all logs together may still take. Thread-safe; a leaf among locks."""

    def __init__(
        self, name: str, limit: int = sys.maxsize, on_low: Callable[[], object] = lambda: None
    ) -> None:
        """`on_low` is called under a log's lock: it has `restock` called soon, elsewhere."""
        self.limit: Final = limit
        self.name: Final = name
        self._on_low = on_low
        self._lock = threading.Lock()
        self._left = limit
        self._low = limit // _LOW_PART
        self._is_asked = False

    def take(self, amount: int) -> None:
        """Take some of what is left; raises Overloaded if that is less."""
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
        """Go on from so much as was counted."""
        with self._lock:
            self._left = max(0, self.limit - held)
            self._low = self._left // _LOW_PART
            self._is_asked = False
