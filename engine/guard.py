"""Taking a lock with a short timeout, and the error if that fails."""

from __future__ import annotations

import threading
from typing import Final

PATIENCE_SECONDS: Final = 0.002
"""Longer than any step under a lock that does not wait for the disk; see docs/concurrency.md."""


class WouldBlock(Exception):
    """The operation would wait for the disk, or for a thread that may be waiting for it."""


class Impatient:
    """A lock for callers that must not wait: `with` raises WouldBlock after a short timeout."""

    __slots__ = ("_lock", "_seconds")

    def __init__(self, lock: threading.Lock, seconds: float = PATIENCE_SECONDS) -> None:
        self._lock = lock
        self._seconds = seconds

    def __enter__(self) -> None:
        acquire = self._lock.acquire
        if not (acquire(False) or acquire(timeout=self._seconds)):
            raise WouldBlock

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        self._lock.release()
