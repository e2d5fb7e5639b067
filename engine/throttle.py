"""A limit on bytes per second, averaged over about 300 ms. Kafka's `Throttler`."""

from __future__ import annotations

from typing import Final

from engine.clock import Clock

CHECK_INTERVAL_MS: Final = 300
"""Bytes accumulate for this long before a wait, so that waits are few and not too short."""


class Throttle:
    """Counts bytes and computes waits. Not thread-safe."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._bytes_per_ms = bytes_per_second / 1000
        self._period_start_ms = clock.monotonic_ms()
        self._period_bytes = 0

    def pause_ms(self, size_bytes: int) -> int:
        """Count bytes; return how many ms to wait, nearly always 0."""
        self._period_bytes += size_bytes
        elapsed_ms = self._clock.monotonic_ms() - self._period_start_ms
        if elapsed_ms <= CHECK_INTERVAL_MS:
            return 0
        pause_ms = max(0, round(self._period_bytes / self._bytes_per_ms - elapsed_ms))
        self._period_start_ms += elapsed_ms + pause_ms
        self._period_bytes = 0
        return pause_ms
