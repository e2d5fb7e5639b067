"""Locks for the engine that pass the turn on instead of waiting.

Inside `engine_locks()` every `threading.Lock()` of the engine is one of these. On a thread outside
a schedule it is an ordinary lock.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

from tests.interleavings.turns import turns_here


class TurnLock:
    """`threading.Lock`, whose waiting is scheduled."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as the real one
        turns = turns_here()
        if turns is None or not blocking:
            return self._lock.acquire(blocking, timeout)
        if timeout >= 0 and self._lock.locked():
            turns.give_way()
            return self._lock.acquire(blocking=False)
        while not self._lock.acquire(blocking=False):
            turns.wait_for(self)
        return True

    def release(self) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def is_free(self) -> bool:
        return not self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Threading:
    """The module `threading` as the engine sees it."""

    def __init__(self, kind: type) -> None:
        self.Lock = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


@contextlib.contextmanager
def engine_locks(kind: type = TurnLock) -> Iterator[None]:
    """Have all locks that the engine makes inside be of that kind; by default scheduled ones."""
    with contextlib.ExitStack() as stack:
        for module in _modules_with_locks():
            stack.enter_context(mock.patch.object(module, "threading", _Threading(kind)))
        yield


def _modules_with_locks() -> list[ModuleType]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("engine.") and getattr(module, "threading", None) is threading
    ]
