"""A caller that must not wait takes a lock at once or gets an error."""

import threading

import pytest

from engine.errors import WouldBlock
from engine.log.state import Impatient


def test_a_lock_that_is_held_is_not_waited_for() -> None:
    """WouldBlock, and the holder keeps it."""
    lock = threading.Lock()
    with lock, pytest.raises(WouldBlock), Impatient(lock):
        pytest.fail("two are inside")
    assert not lock.locked()


def test_an_error_inside_lets_go() -> None:
    """After an exception the lock is free again."""
    lock = threading.Lock()
    with pytest.raises(ValueError, match="inside"), Impatient(lock):
        raise ValueError("inside")
    assert not lock.locked()
