"""Endless answers on their way to clients, and which of those clients take nothing.

What waits for a client is one event and what the transport buffers: the transport takes no more
while it has more than that. So nothing piles up, and a client that reads slowly is served slowly;
one that does not read at all is told that it is too slow, and cut off if it does not even take
that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from app.http.answers import Scope, Send
from engine.types import Buffer

CUT_OFF: Final = "tidelog.cut_off"
"""The ASGI extension that ends a connection at once, whatever waits to be sent."""

SEND_NOW: Final = "tidelog.send_now"
"""The ASGI extension that writes a piece of the present answer as it is, if there is room."""

PIECE_BYTES: Final = 64 * 1024
"""What the transport is given at a time; when it has more than that it takes no more."""

HURRY_SECONDS: Final = 2.0
"""What a client gets that takes nothing while the service stops."""

_SWEEPS: Final = 4
"""Looks at the clients in the time that a client may take nothing."""


def cut_off_of(scope: Scope) -> Callable[[], None]:
    """Return what ends the connection of a request at once, if the server offers a way to."""
    cut_off: Callable[[], None] = scope.get("extensions", {}).get(CUT_OFF, _do_nothing)
    return cut_off


def _do_nothing() -> None: ...


class Delivery:
    """An answer to one client that ends when the service says so."""

    __slots__ = ("_send", "blocked_since", "cut_off", "is_slow")

    def __init__(self, send: Send, cut_off: Callable[[], None]) -> None:
        self.is_slow = False
        """Whether the client once took nothing for too long; its answer is to be ended."""
        self.blocked_since: float | None = None
        self.cut_off = cut_off
        """Ends the connection."""
        self._send = send

    async def send(self, data: Buffer) -> None:
        """Send a part of the body; returns when the transport has taken it.

        A large one is taken when all of it but what the transport buffers is on its way.
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


class Deliveries:
    """Every endless answer; belongs to the event loop. One timer looks after all of them."""

    def __init__(self, *, stall_timeout_ms: int) -> None:
        self._limit_seconds = stall_timeout_ms / 1000
        self._deliveries: dict[Delivery, None] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def slow(self) -> int:
        """How many clients have taken nothing for too long."""
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
