"""Time as a port: the engine reads the time only from this object."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock and monotonic milliseconds."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch; may jump when the host's clock is set."""

    def monotonic_ms(self) -> int:
        """Return milliseconds that never go backwards; only differences mean anything."""


class SystemClock:
    """The host's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
