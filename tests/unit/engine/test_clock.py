"""The host's clock."""

import time

from engine.clock import SystemClock


def test_the_wall_clock_counts_milliseconds_since_the_epoch() -> None:
    """It returns the host's time in whole milliseconds."""
    before = time.time_ns() // 1_000_000
    now_ms = SystemClock().now_ms()
    assert before <= now_ms <= time.time_ns() // 1_000_000


def test_monotonic_time_never_goes_back() -> None:
    """Of many readings none is below the one before."""
    clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(1_000)]
    assert readings == sorted(readings)
