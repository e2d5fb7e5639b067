"""A lock that can prove that its caller holds it."""

import threading

import pytest

from engine.guard import GuardedLock


def test_whoever_is_inside_holds_it() -> None:
    """`assert_held` passes inside the lock and fails before and after."""
    lock = GuardedLock()
    with pytest.raises(AssertionError, match="must hold"):
        lock.assert_held()
    with lock:
        lock.assert_held()
    with pytest.raises(AssertionError, match="must hold"):
        lock.assert_held()


def test_another_thread_does_not_hold_it() -> None:
    """While one thread is inside, the claim of another fails."""
    lock = GuardedLock()
    refused: list[bool] = []

    def claim() -> None:
        try:
            lock.assert_held()
        except AssertionError:
            refused.append(True)

    with lock:
        thread = threading.Thread(target=claim)
        thread.start()
        thread.join()
    assert refused == [True]


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
    with lock:
        lock.assert_held()
