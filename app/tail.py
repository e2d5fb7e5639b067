"""The long poll: readers at the end of a log, woken when the readable end moves."""

from __future__ import annotations

import asyncio
import contextlib

from app.answers import Receive
from engine.log.log import Log


class ClientGone(Exception):
    """The client hung up; there is nobody to answer."""


class Tail:
    """Who waits at the end of which log. Belongs to the event loop."""

    def __init__(self) -> None:
        self._waiters: dict[Log, set[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """How many readers wait."""
        return sum(map(len, self._waiters.values()))

    def wake(self, log: Log) -> None:
        """Wake every reader of this log to look again."""
        for future in self._waiters.pop(log, ()):
            future.set_result(None)

    def wake_all(self) -> None:
        """Wake everybody: the service drains."""
        for log in list(self._waiters):
            self.wake(log)

    async def wait(self, log: Log, timeout_seconds: float, gone: asyncio.Future[None]) -> None:
        """Return when the log moved, the time is over or the client is gone, whichever is first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(log, set()).add(future)
        try:
            await asyncio.wait(
                {future, gone}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            self._forget(log, future)

    def _forget(self, log: Log, future: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(log)
        if waiters is not None:
            waiters.discard(future)
            if not waiters:
                del self._waiters[log]


class Departure:
    """Knows when the client hangs up: `async with Departure(receive) as departure`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    async def __aenter__(self) -> asyncio.Future[None]:
        self._watch = asyncio.ensure_future(self._until_disconnect())
        return self._watch

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watch

    async def _until_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
