"""An HTTP answer as a value, and how it is sent; used by `app.wire` and `app.api`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple, TypeAlias

from starlette.responses import Response

from engine.types import Buffer

_LOG = logging.getLogger(__name__)

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]
Body: TypeAlias = bytes | bytearray

SEND_BYTES: Final = 1024 * 1024
"""An answer is sent in pieces of this size, each after the one before: a slow reader holds its
answer, which admission counts, and over TLS at most one such piece a second time."""

JSON: Final = b"application/json"
JSON_WITH_TEXT_OFFSETS: Final = b"application/json;offsets=string"
"""JSON with offsets as strings: a media type of its own, because its schema differs."""
NDJSON: Final = b"application/x-ndjson"
PROBLEM: Final = b"application/problem+json"
RECORD_BATCH: Final = b"application/vnd.kafka.recordbatch.v2"
ARROW: Final = b"application/vnd.apache.arrow.stream"
BINARY: Final = b"application/octet-stream"
NO_STORE: Final = (b"cache-control", b"no-store")
FOREVER: Final = {
    "private": (b"cache-control", b"private, max-age=31536000, immutable"),
    "public": (b"cache-control", b"public, max-age=31536000, immutable"),
}
"""Cache-Control of an answer that never changes, by the setting `cache_visibility`."""
REVALIDATED: Final = {
    "private": (b"cache-control", b"private, no-cache"),
    "public": (b"cache-control", b"public, no-cache"),
}
"""Stored by a cache, and revalidated at every use."""


class Answer(NamedTuple):
    """Status, headers without Content-Length, and body."""

    status: int
    headers: Headers
    body: Buffer


Coder: TypeAlias = Callable[[Answer], Awaitable[Answer]]
CODER: Final = "tidelog.coded"
"""The scope key of the function that chooses the answer's content coding."""


def json_answer(body: bytes, *, status: int = 200, headers: Headers | None = None) -> Answer:
    """Return a JSON answer that no cache stores."""
    return Answer(status, [(b"content-type", JSON), NO_STORE, *(headers or ())], body)


class AnswerResponse(Response):
    """An answer as the response of a route.

    If the scope has `tidelog.coded`, it is applied last.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(status_code=answer.status)
        self.answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        coded: Coder | None = scope.get(CODER)
        await send_answer(send, self.answer if coded is None else await coded(self.answer))


def etag_of(leader_epoch: int, log_end_offset: int, last_batch_crc: int) -> bytes:
    """Return the ETag of this log end."""
    return b'"%d-%d-%08x"' % (leader_epoch, log_end_offset, last_batch_crc)


async def send_answer(send: Send, answer: Answer, trace: bytes | None = None) -> None:
    """Send the answer with the traceparent; returns when all but its last piece was sent."""
    status, headers, body = answer
    size = len(body)
    if status not in {204, 304}:
        headers.append((b"content-length", b"%d" % size))
    if trace is not None:
        headers.append((b"traceparent", trace))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if size > SEND_BYTES:
        view = memoryview(body)
        sent = 0
        while size - sent > SEND_BYTES:
            piece = view[sent : sent + SEND_BYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            sent += SEND_BYTES
        body = view[sent:]
    await send({"type": "http.response.body", "body": body})


class BrokenOff(Exception):
    """A streamed answer ends early, for a reason that needs no stack trace."""


class StreamedAnswer(NamedTuple):
    """An answer whose body is produced while it is sent: `size_bytes` long, or broken off.

    Without a size it is chunked; the last chunk is missing if it breaks off.
    """

    status: int
    headers: Headers
    size_bytes: int | None
    pieces: AsyncGenerator[Buffer]


class StreamedResponse(Response):
    """A streamed answer as the response of a route.

    If the body cannot be completed, the connection is closed: no client takes a part for the whole.
    """

    def __init__(self, answer: StreamedAnswer) -> None:
        super().__init__(status_code=answer.status)
        self.answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        status, headers, size_bytes, pieces = self.answer
        sent = 0
        if size_bytes is not None:
            headers = [*headers, (b"content-length", b"%d" % size_bytes)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    view = memoryview(piece)
                    for start in range(0, len(view), SEND_BYTES):
                        part = view[start : start + SEND_BYTES]
                        await send({"type": "http.response.body", "body": part, "more_body": True})
                    sent += len(view)
        except BrokenOff as reason:
            _LOG.info("%s ends early, at byte %d: %s", scope["path"], sent, reason)
            return
        except Exception:  # noqa: BLE001  # the client must notice any error
            _LOG.exception("%s ends early, at byte %d", scope["path"], sent)
            return
        if size_bytes in {None, sent}:  # otherwise the client has disconnected
            await send({"type": "http.response.body", "body": b""})
