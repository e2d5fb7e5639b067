"""The lock of a log lets one thread in at a time."""

import threading

import pytest

from engine.guard import GuardedLock


def test_it_lets_one_in_at_a_time() -> None:
    """Four threads that count without care lose nothing under it."""
    lock = GuardedLock()
    total = 0

    def count() -> None:
        nonlocal total
        for _ in range(2_000):
            with lock:
                seen = total
                total = seen + 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == 8_000


def test_an_error_inside_lets_go() -> None:
    """After an exception the lock is free again."""
    lock = GuardedLock()
    with pytest.raises(ValueError, match="inside"), lock:
        raise ValueError("inside")
    lock.acquire_soon()
