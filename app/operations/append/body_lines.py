"""A body of any length as parts of whole lines, in bounded memory, while it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.codecs.body_stream import IDENTITY, Lines, decoder_of
from app.errors import Draining, RequestTimedOut
from app.http.answers import Message
from app.operations.exchange import Exchange
from app.operations.read.wait import ClientGone
from engine.types import Buffer


class BodyParts:
    """The body as parts of whole lines, soon after they arrive.

    When `has_failed` is set, the rest is not awaited: an earlier part failed.
    """

    def __init__(
        self, exchange: Exchange, largest_part_bytes: int, has_failed: asyncio.Event
    ) -> None:
        self.credentials_ended = asyncio.Event()
        """Set when the caller's credentials end: the rest is not awaited."""
        settings = exchange.service.settings
        part_bytes = max(1, min(settings.max_stream_part_bytes, largest_part_bytes))
        self._exchange = exchange
        encoding = exchange.head.get(b"content-encoding", IDENTITY)
        self._is_plain = encoding == IDENTITY
        self._decoder = decoder_of(encoding)
        self._lines = Lines(part_bytes, settings.max_request_bytes)
        self._linger_s = settings.stream_linger_ms / 1000
        idle_ms = settings.stream_idle_timeout_ms
        self._idle_s = idle_ms / 1000
        self._least_bytes = max(1, settings.min_stream_bytes_per_second * idle_ms // 1000)
        """Bytes that have to arrive within the idle time."""
        self._due_s: float | None = None
        """When complete lines have waited long enough for more."""
        self._writing_bytes = 0
        """Size of the last part, held until it is in the log."""
        self._has_failed = has_failed

    async def arriving(self) -> AsyncGenerator[bytes]:
        """Yield parts until the body has ended; each ends with a line.

        No part is empty, except one that only shows that an earlier part has failed. Raises
        ClientGone, RequestTimedOut, Unauthenticated, Draining, Overloaded, and as `Decoder` and
        `Lines`.
        """
        lines, decoder = self._lines, self._decoder
        loop = asyncio.get_running_loop()
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                decoder.feed(chunk)
                while piece := await self._decoded():
                    lines.add(piece)
                    self._settle()
                    while (part := lines.take_full()) is not None:
                        yield self._handed_on(part)
                if self._has_failed.is_set():
                    yield b""
                elif not lines.has_whole:
                    self._due_s = None
                elif self._due_s is None:
                    self._due_s = loop.time() + self._linger_s
                elif loop.time() >= self._due_s:
                    self._due_s = None
                    yield self._handed_on(lines.take_whole())
                    self._settle()
        decoder.close()
        if rest := lines.take_rest():
            yield rest

    def _handed_on(self, part: bytes) -> bytes:
        self._writing_bytes = len(part)
        return part

    def _settle(self) -> None:
        """Count held bytes: a silent stream holds only its last lines."""
        held_bytes = self._lines.held_bytes + self._decoder.held_bytes
        self._exchange.ticket.settle_body(held_bytes + self._writing_bytes)

    async def _decoded(self) -> Buffer:
        if self._is_plain:
            return self._decoder.read()
        return await self._exchange.write(self._decoder.read)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        """Yield received pieces, and nothing when lines are due or an append has failed."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.ensure_future(self._exchange.service.stopping.wait())
        failing = asyncio.ensure_future(self._has_failed.wait())
        ending = asyncio.ensure_future(self.credentials_ended.wait())
        coming: asyncio.Future[Message] | None = None
        given_up_s, fresh_bytes = loop.time() + self._idle_s, 0
        try:
            while True:
                if coming is None:
                    pause_s = self._exchange.caller.debt_s("bytes_in")
                    coming = asyncio.ensure_future(self._receive_after(pause_s))
                    given_up_s += pause_s
                next_s = given_up_s if self._due_s is None else min(given_up_s, self._due_s)
                await asyncio.wait(
                    (coming, stopping, failing, ending),
                    timeout=max(0, next_s - loop.time()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                now = loop.time()
                if coming.done():
                    message, coming = coming.result(), None
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    body = message.get("body", b"")
                    fresh_bytes += len(body)
                    if fresh_bytes >= self._least_bytes:
                        given_up_s, fresh_bytes = now + self._idle_s, 0
                    yield body
                    if not message.get("more_body"):
                        return
                    self._ensure_going_on(is_late=now >= given_up_s)
                elif failing.done():
                    yield b""
                else:
                    self._ensure_going_on(is_late=now >= given_up_s)
                    yield b""
                given_up_s += loop.time() - now  # the client waited for its lines in that time
        finally:
            stopping.cancel()
            failing.cancel()
            ending.cancel()
            if coming is not None:
                coming.cancel()

    def _ensure_going_on(self, *, is_late: bool) -> None:
        """Raise if the rest of the body is not to be awaited."""
        if self.credentials_ended.is_set():
            raise self._exchange.caller.ended()
        if self._exchange.service.stopping.is_set():
            raise Draining("the service is stopping")
        if is_late:
            settings = self._exchange.service.settings
            raise RequestTimedOut(
                f"less than min_stream_bytes_per_second ({settings.min_stream_bytes_per_second}) "
                f"of the body arrived for {settings.stream_idle_timeout_ms} ms"
            )

    async def _receive_after(self, pause_s: float) -> Message:
        """Receive the next piece once the quota allows it: until then the client waits."""
        if pause_s:
            await asyncio.sleep(pause_s)
        return await self._exchange.receive()
