"""The bound on bytes per second."""

import math

from engine.throttle import CHECK_INTERVAL_MS, Throttle
from tests.support.time import ManualClock


def test_too_fast_means_waiting_until_the_average_is_right() -> None:
    """Bytes accumulate for a while; then the pause restores the average."""
    clock = ManualClock()
    throttle = Throttle(clock, 1000)
    assert throttle.pause_ms(500) == 0
    clock.advance(CHECK_INTERVAL_MS)
    assert throttle.pause_ms(500) == 0
    clock.advance(1)
    assert throttle.pause_ms(0) == 1000 - CHECK_INTERVAL_MS - 1


def test_slow_enough_means_no_pause_and_a_new_period() -> None:
    """Unused bytes are not saved for later."""
    clock = ManualClock()
    throttle = Throttle(clock, 1000)
    clock.advance(10_000)
    assert throttle.pause_ms(1000) == 0
    clock.advance(CHECK_INTERVAL_MS + 1)
    assert throttle.pause_ms(1000) == 1000 - CHECK_INTERVAL_MS - 1


def test_without_a_bound_nothing_waits() -> None:
    """An infinite rate is never exceeded."""
    clock = ManualClock()
    throttle = Throttle(clock, math.inf)
    clock.advance(CHECK_INTERVAL_MS + 1)
    assert throttle.pause_ms(1 << 40) == 0
