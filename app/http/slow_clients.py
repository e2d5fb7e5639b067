"""Endless answers, and clients that do not receive them.

At most one event and the transport's buffer wait for a client; the transport accepts no more while
its buffer is full. So nothing accumulates, and a slow client is served slowly. A client that does
not read at all gets a last event that says so, and is disconnected if it does not read that either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from app.http.answers import Scope, Send
from engine.types import Buffer

CUT_OFF: Final = "tidelog.cut_off"
"""The ASGI extension that closes a connection at once, with unsent bytes."""

SEND_NOW: Final = "tidelog.send_now"
"""The ASGI extension that writes a piece of the current answer, if there is room."""

PIECE_BYTES: Final = 64 * 1024
"""The size of the pieces for the transport; it accepts no more while it holds more than that."""

HURRY_SECONDS: Final = 2.0
"""Time for a client that receives nothing while the service stops."""

_SWEEPS: Final = 4
"""Checks per time that a client may receive nothing."""


def cut_off_of(scope: Scope) -> Callable[[], None]:
    """Return a function that closes the connection at once, if the server offers it."""
    cut_off: Callable[[], None] = scope.get("extensions", {}).get(CUT_OFF, _do_nothing)
    return cut_off


def _do_nothing() -> None: ...


class Delivery:
    """An endless answer to one client."""

    __slots__ = ("_send", "blocked_since", "cut_off", "is_slow")

    def __init__(self, send: Send, cut_off: Callable[[], None]) -> None:
        self.is_slow = False
        """Whether the client has received nothing for too long; its answer is to end."""
        self.blocked_since: float | None = None
        self.cut_off = cut_off
        """Closes the connection."""
        self._send = send

    async def send(self, data: Buffer) -> None:
        """Send a part of the body; returns when the transport has accepted it.

        A large part is accepted when only the transport's buffer remains to be sent.
        """
        self.blocked_since = asyncio.get_running_loop().time()
        if len(data) <= PIECE_BYTES:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        else:
            view = memoryview(data)
            for start in range(0, len(data) + PIECE_BYTES, PIECE_BYTES):  # the last one is empty
                piece = view[start : start + PIECE_BYTES]
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        self.blocked_since = None


class SlowClients:
    """All endless answers, with one timer. Belongs to the event loop."""

    def __init__(self, *, stall_timeout_ms: int) -> None:
        self._limit_seconds = stall_timeout_ms / 1000
        self._deliveries: dict[Delivery, None] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def slow(self) -> int:
        """The number of clients that have received nothing for too long."""
        return sum(delivery.is_slow for delivery in self._deliveries)

    @contextmanager
    def begin(self, scope: Scope, send: Send) -> Iterator[Delivery]:
        """Yield a delivery to the client of this request."""
        delivery = Delivery(send, cut_off_of(scope))
        self._deliveries[delivery] = None
        if self._sweeper is None:
            self._sweep()
        try:
            yield delivery
        finally:
            del self._deliveries[delivery]

    def hurry(self) -> None:
        """Give clients less time: the service stops."""
        self._limit_seconds = min(self._limit_seconds, HURRY_SECONDS)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweep()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for delivery in self._deliveries:
            if delivery.blocked_since is None:
                continue
            blocked_seconds = now - delivery.blocked_since
            if blocked_seconds > self._limit_seconds:
                delivery.is_slow = True
            if blocked_seconds > 2 * self._limit_seconds:
                delivery.cut_off()
        self._sweeper = None
        if self._deliveries:
            self._sweeper = loop.call_later(self._limit_seconds / _SWEEPS, self._sweep)
