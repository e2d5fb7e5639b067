"""Waiters for committed offsets: the committer's callback becomes one wake-up of the event loop.

If the event loop's own thread ran the round, the callback settles them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from app.errors import CommitTimedOut
from app.store.port import Settle
from engine.errors import StorageOffline
from engine.log.log import Log

_Waiter: TypeAlias = tuple[int, float, Settle]
"""The awaited end offset, the deadline by the loop's clock, and the callback."""


class Commits:
    """Waiters for committed offsets, settled together: one `call_soon_threadsafe` per flush round.

    The thread of the round calls `committed` and `failed`; everything else belongs to the event
    loop. In the other direction too, waiters that arrive in one turn of the loop request one round.
    """

    def __init__(self, *, timeout_ms: int, on_moved: Callable[[Log], None]) -> None:
        self._timeout_seconds = timeout_ms / 1000
        self._on_moved = on_moved
        self._waiters: dict[Log, deque[_Waiter]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = -1
        self._wake: Callable[[], None] | None = None
        self.is_due = False
        """Whether an append has not requested a round yet: set by the loop before an append that is
        to be committed. The next waiter requests it at the end of its turn, unless `ask` did."""
        self._is_asking = False
        """Whether `ask` runs at the end of this turn of the loop."""
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """The number of appends that wait for the disk."""
        return sum(map(len, self._waiters.values()))

    def attach(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """Set the loop, which runs this, and the function that has a round begun or run."""
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._wake = wake

    def wait(self, log: Log, end_offset: int) -> asyncio.Future[None] | None:
        """Return a future for "everything below `end_offset` is on disk"; None if it already is.

        The future fails with StorageError if the flush failed, with CommitTimedOut if it timed out.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return future if self.when(log, end_offset, partial(_resolve, future)) else None

    def when(self, log: Log, end_offset: int, settle: Settle) -> bool:
        """Call `settle` when everything below `end_offset` is on disk; False if it already is.

        It is called once, later and on the loop: with None, or with the error of `wait`'s future.
        It must not raise.
        """
        if log.watermarks.high_watermark >= end_offset:
            return False
        loop = self._loop
        assert loop is not None, "waiters are admitted after `attach`"
        if (
            log.durability.health.is_offline
        ):  # the failed flush notified only those that already waited
            loop.call_soon(settle, _after_append(log.durability.health.offline_error()))
            return True
        waiters = self._waiters.get(log)
        if waiters is None:
            waiters = self._waiters[log] = deque()
        waiters.append((end_offset, loop.time() + self._timeout_seconds, settle))
        if self.is_due and not self._is_asking:
            self._is_asking = True
            loop.call_soon(self._ask_at_end)
        if self._sweeper is None:
            self._sweeper = loop.call_at(waiters[0][1], self._sweep)
        return True

    def ask(self) -> None:
        """Request a round now, if one is due; it may be over on return."""
        if self.is_due:
            self.is_due = False
            assert self._wake is not None, "waiters are admitted after `attach`"
            self._wake()

    def _ask_at_end(self) -> None:
        self._is_asking = False
        self.ask()

    def committed(self, moved: Sequence[tuple[Log, int]]) -> None:
        """Accept one flush round from its thread: these logs are on disk up to here."""
        self._call(self._settle, tuple(moved))

    def failed(self, logs: Sequence[Log], error: Exception) -> None:
        """Accept a failed flush from its thread: all its waiters get the error."""
        self._call(self.abandon, tuple(logs), error)

    def abandon(self, logs: Sequence[Log], error: Exception) -> None:
        """Fail all waiters of these logs and wake their readers."""
        for log in logs:
            for _, _, settle in self._waiters.pop(log, ()):
                settle(_after_append(error))
            self._on_moved(log)

    def _call(self, work: Callable[..., None], *arguments: object) -> None:
        if threading.get_ident() == self._thread_id:
            work(*arguments)
        elif self._loop is not None:
            # If the loop closed during the last round, there are no waiters.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(work, *arguments)

    def _settle(self, moved: Sequence[tuple[Log, int]]) -> None:
        for log, high_watermark in moved:
            waiters = self._waiters.pop(log, None)
            if waiters is not None:
                remaining = [waiter for waiter in waiters if waiter[0] > high_watermark]
                if remaining:
                    self._waiters[log] = deque(remaining)
                for end_offset, _, settle in waiters:
                    if end_offset <= high_watermark:
                        settle(None)
            self._on_moved(log)

    def _sweep(self) -> None:
        """Fail waiters past their deadline; one timer, at the earliest deadline, serves all."""
        loop = self._loop
        assert loop is not None, "waiters are admitted after `attach`"
        now = loop.time()
        for log, waiters in list(self._waiters.items()):
            while waiters and waiters[0][1] <= now:
                _, _, settle = waiters.popleft()
                settle(CommitTimedOut(f"the disk has not confirmed {log.topic_partition} in time"))
            if not waiters:
                del self._waiters[log]
        # Each waiter waits as long as any other, so the first of each log is its earliest.
        earliest = min((waiters[0][1] for waiters in self._waiters.values()), default=None)
        self._sweeper = None if earliest is None else loop.call_at(earliest, self._sweep)


def _after_append(error: Exception) -> Exception:
    """Return the error for a waiter: its append may be on disk."""
    if isinstance(error, StorageOffline):
        error.has_begun = True
    return error


def _resolve(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():  # the waiter was cancelled
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
