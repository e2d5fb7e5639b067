"""A lock that is not re-entrant and can prove that its caller holds it."""

from __future__ import annotations

import threading
from types import TracebackType


class GuardedLock:
    """A mutex with `assert_held`, after LevelDB's `AssertHeld`."""

    __slots__ = ("_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._owner = None
        self._lock.release()

    def assert_held(self) -> None:
        """Fail unless the calling thread is inside the lock."""
        assert self._owner == threading.get_ident(), "the caller must hold this lock"
