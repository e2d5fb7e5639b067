"""What must not be waited for: a lock that is tried for a moment, and the error if that fails."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final

PATIENCE_SECONDS: Final = 0.002
"""Longer than any step under a lock that needs no device; see docs/concurrency.md."""


class WouldBlock(Exception):
    """What was to be done at once cannot be: for a disk, or for somebody who may wait for one."""


class Impatient:
    """A lock for who must not wait: `with` raises WouldBlock if it is held for longer."""

    __slots__ = ("_lock",)

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            raise WouldBlock

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()
