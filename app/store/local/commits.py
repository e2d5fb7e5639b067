"""The committer's callback as one wake-up of the event loop; who waits for which offset."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from app.http.problems import CommitTimedOut
from engine.errors import StorageOffline
from engine.log.log import Log

SWEEP_SECONDS = 1.0

Settle: TypeAlias = Callable[[Exception | None], None]
"""Told once how the wait ended: with None, or with why nothing more will come."""

_Waiter: TypeAlias = tuple[int, float, Settle]
"""The end that is waited for, the time on the loop's clock when it is too late, whom to tell."""


class Commits:
    """Waiters for committed offsets, settled together: one `call_soon_threadsafe` per flush round.

    `committed` and `failed` are called by the flusher thread; everything else belongs to the loop.
    The other way round it is the same: whoever begins to wait in one turn of the loop asks for a
    flush together with everyone else of that turn.
    """

    def __init__(self, *, timeout_ms: int, on_moved: Callable[[Log], None]) -> None:
        self._timeout_seconds = timeout_ms / 1000
        self._on_moved = on_moved
        self._waiters: dict[Log, deque[_Waiter]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: Callable[[], None] | None = None
        self._asks = False
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many appends wait for the disk."""
        return sum(map(len, self._waiters.values()))

    def attach(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """Take the loop that is to be woken and what wakes the flusher; before, nobody is."""
        self._loop = loop
        self._wake = wake

    def wait(self, log: Log, end_offset: int) -> asyncio.Future[None] | None:
        """Return a future for "everything below `end_offset` is on disk"; None if it is already.

        The future fails with StorageError if the flush failed, with CommitTimedOut if it never
        came.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return future if self.when(log, end_offset, partial(_resolve, future)) else None

    def when(self, log: Log, end_offset: int, settle: Settle) -> bool:
        """Have `settle` called when everything below `end_offset` is on disk; False if it is.

        It is called once, later and on the loop: with None, or with the error of `wait`'s future.
        It may not raise.
        """
        if log.watermarks.high_watermark >= end_offset:
            return False
        loop = self._loop
        assert loop is not None, "whoever waits was let in after `attach`"
        if (
            log.durability.health.is_offline
        ):  # the flush that failed has told only who waited by then
            loop.call_soon(settle, _after_append(log.durability.health.offline_error()))
            return True
        waiters = self._waiters.get(log)
        if waiters is None:
            waiters = self._waiters[log] = deque()
        waiters.append((end_offset, loop.time() + self._timeout_seconds, settle))
        if not self._asks:
            self._asks = True
            loop.call_soon(self.ask)
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)
        return True

    def ask(self) -> None:
        """Ask for a flush now, not only when the turn ends, if somebody waits who has not asked."""
        if self._asks:
            self._asks = False
            assert self._wake is not None, "whoever waits was let in after `attach`"
            self._wake()

    def committed(self, moved: Sequence[tuple[Log, int]]) -> None:
        """Take one flush round from the flusher thread: these logs are on disk up to here."""
        self._call(self._settle, tuple(moved))

    def failed(self, logs: Sequence[Log], error: Exception) -> None:
        """Take a failed flush from the flusher thread: everyone who waits on these logs is told."""
        self._call(self.abandon, tuple(logs), error)

    def abandon(self, logs: Sequence[Log], error: Exception) -> None:
        """Fail everyone who waits on these logs and wake their readers."""
        for log in logs:
            for _, _, settle in self._waiters.pop(log, ()):
                settle(_after_append(error))
            self._on_moved(log)

    def _call(self, work: Callable[..., None], *arguments: object) -> None:
        if self._loop is not None:
            # A loop that closed while the last round ran has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(work, *arguments)

    def _settle(self, moved: Sequence[tuple[Log, int]]) -> None:
        for log, high_watermark in moved:
            waiters = self._waiters.pop(log, ())
            remaining = deque(waiter for waiter in waiters if waiter[0] > high_watermark)
            if remaining:
                self._waiters[log] = remaining
            for end_offset, _, settle in waiters:
                if end_offset <= high_watermark:
                    settle(None)
            self._on_moved(log)

    def _sweep(self) -> None:
        """Fail whoever has waited too long; one timer for all instead of one each."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for log, waiters in list(self._waiters.items()):
            while waiters and waiters[0][1] <= now:
                _, _, settle = waiters.popleft()
                settle(CommitTimedOut(f"the disk has not confirmed {log.topic_partition} in time"))
            if not waiters:
                del self._waiters[log]
        again = bool(self._waiters)
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep) if again else None


def _after_append(error: Exception) -> Exception:
    """Return the error as one who waits gets it: what it appended may be on disk."""
    if isinstance(error, StorageOffline):
        error.has_begun = True
    return error


def _resolve(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():  # who waited was called off
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
