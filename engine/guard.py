"""A lock that is not re-entrant, and that a caller need not wait for."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final

PATIENCE_SECONDS: Final = 0.002
"""Longer than any step under a lock that needs no device; see docs/concurrency.md."""


class WouldBlock(Exception):
    """What was to be done at once cannot be: for a disk, or for somebody who may wait for one."""


class GuardedLock:
    """A mutex that can also be tried for a moment; see `Impatient`."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def acquire_soon(self) -> None:
        """Take the lock unless it is held for longer than a moment; then raise WouldBlock."""
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            raise WouldBlock


class Impatient:
    """A guarded lock for who must not wait: `with` raises WouldBlock instead."""

    __slots__ = ("_lock",)

    def __init__(self, lock: GuardedLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire_soon()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, trace)
