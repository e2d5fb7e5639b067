"""The committer's callback as one wake-up of the event loop; who waits for which offset."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from engine.log.log import Log

SWEEP_SECONDS = 1.0


class CommitTimedOut(Exception):
    """The disk has not confirmed an append in time: it may or may not be in the log."""


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
        if log.watermarks.high_watermark >= end_offset:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiters = self._waiters.get(log)
        if waiters is None:
            waiters = self._waiters[log] = deque()
        waiters.append((end_offset, loop.time() + self._timeout_seconds, future))
        if not self._asks:
            self._asks = True
            loop.call_soon(self._ask)
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)
        return future

    def _ask(self) -> None:
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
            for _, _, future in self._waiters.pop(log, ()):
                if not future.done():
                    future.set_exception(error)
            self._on_moved(log)

    def _call(self, work: Callable[..., None], *arguments: object) -> None:
        if self._loop is not None:
            # A loop that closed while the last round ran has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(work, *arguments)

    def _settle(self, moved: Sequence[tuple[Log, int]]) -> None:
        for log, high_watermark in moved:
            waiters = self._waiters.get(log)
            if waiters is not None:
                remaining = deque(
                    waiter for waiter in waiters if not _settled(waiter, high_watermark)
                )
                if remaining:
                    self._waiters[log] = remaining
                else:
                    del self._waiters[log]
            self._on_moved(log)

    def _sweep(self) -> None:
        """Fail whoever has waited too long; one timer for all instead of one each."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for log, waiters in list(self._waiters.items()):
            while waiters and waiters[0][1] <= now:
                _, _, future = waiters.popleft()
                if not future.done():
                    future.set_exception(
                        CommitTimedOut(f"the disk has not confirmed {log.topic_partition} in time")
                    )
            if not waiters:
                del self._waiters[log]
        again = bool(self._waiters)
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep) if again else None


_Waiter = tuple[int, float, "asyncio.Future[None]"]


def _settled(waiter: _Waiter, high_watermark: int) -> bool:
    end_offset, _, future = waiter
    if end_offset > high_watermark:
        return False
    if not future.done():
        future.set_result(None)
    return True
