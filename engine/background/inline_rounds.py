"""Whether the thread that asks for a round commits it itself, or the flusher does.

To hand a round to another thread and its result back costs more than a quick sync: two wake-ups,
and waits for the interpreter's lock on both sides. `InlineChoice` follows how long rounds take.
"""

from __future__ import annotations

import math
from typing import Final

LOOK_AFTER: Final = 4
"""The rounds of the flusher after which a round may be inline again."""

LOOK_AFTER_AT_MOST: Final = 4_096
"""The interval doubles up to this while fewer than `LASTING` inline rounds are quick in a row."""

LASTING: Final = 16
"""After so many quick inline rounds, a slow one is an exception."""


class InlineChoice:
    """Whether the next round may be inline; changed only by the thread that runs a round.

    After an inline round that waited for the disk longer than the limit, the flusher takes over. A
    new attempt needs a round of the flusher that waited less than that.
    """

    def __init__(self, limit_ms: int) -> None:
        """`limit_ms`: the longest wait of an inline round; 0: none is inline."""
        self._limit_seconds = limit_ms / 1000
        self._interval = LOOK_AFTER
        self._rounds = 0
        """Since the last change between inline rounds and rounds of the flusher."""
        self._shortest_seconds = math.inf
        """Of the flusher's waits in this interval: a lack of processor time makes some longer."""
        self.is_inline = False

    def note(self, seconds: float, *, was_inline: bool) -> None:
        """Record how long a round waited for the disk."""
        self._rounds += 1
        if was_inline:
            if seconds > self._limit_seconds:
                has_lasted = self._rounds > LASTING
                doubled = min(2 * self._interval, LOOK_AFTER_AT_MOST)
                self._restart(LOOK_AFTER if has_lasted else doubled, is_inline=False)
            return
        self._shortest_seconds = min(self._shortest_seconds, seconds)
        if self._rounds >= self._interval:
            is_quick = self._shortest_seconds < self._limit_seconds
            self._restart(self._interval, is_inline=is_quick)

    def _restart(self, interval: int, *, is_inline: bool) -> None:
        self._interval, self._rounds = interval, 0
        self._shortest_seconds = math.inf
        self.is_inline = is_inline
