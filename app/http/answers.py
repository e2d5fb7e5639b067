"""An HTTP answer as a value, and how it is sent: every way in shares both."""

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
"""An answer goes out in pieces of this size, each waiting for the one before: a slow reader holds
its answer, which admission counts, and over TLS no more than such a piece of it a second time."""

JSON: Final = b"application/json"
JSON_WITH_TEXT_OFFSETS: Final = b"application/json;offsets=string"
"""JSON whose offsets are strings: a media type of its own, because its schema is another one."""
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
"""By the setting `cache_visibility`, as below."""
REVALIDATED: Final = {
    "private": (b"cache-control", b"private, no-cache"),
    "public": (b"cache-control", b"public, no-cache"),
}
"""Kept by a cache, and asked for again at every use."""


class Answer(NamedTuple):
    """Status, headers without Content-Length, and body."""

    status: int
    headers: Headers
    body: Buffer


Coder: TypeAlias = Callable[[Answer], Awaitable[Answer]]
CODER: Final = "tidelog.coded"
"""Where the scope of a request has what chooses the content coding of its answer."""


def json_answer(body: bytes, *, status: int = 200, headers: Headers | None = None) -> Answer:
    """Return a JSON answer that no cache keeps."""
    return Answer(status, [(b"content-type", JSON), NO_STORE, *(headers or ())], body)


class AnswerResponse(Response):
    """An answer as what a route returns; sent exactly as `HotTasks` sends it.

    The scope's `tidelog.coded`, if it is there, has the last word on it.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(status_code=answer.status)
        self.answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        coded: Coder | None = scope.get(CODER)
        await send_answer(send, self.answer if coded is None else await coded(self.answer))


def etag_of(leader_epoch: int, log_end_offset: int, last_batch_crc: int) -> bytes:
    """Return the tag that tells this end of a log from every other."""
    return b'"%d-%d-%08x"' % (leader_epoch, log_end_offset, last_batch_crc)


async def send_answer(send: Send, answer: Answer, trace: bytes | None = None) -> None:
    """Send the answer, with the traceparent to echo; returns when all but its last piece left."""
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
    """The rest of a streamed answer is not made, for a reason that needs no stack trace."""


class StreamedAnswer(NamedTuple):
    """An answer whose body is made while it is sent; it is `size_bytes` long, or breaks off.

    Without a size it is sent chunked, and the last chunk is missing if it breaks off.
    """

    status: int
    headers: Headers
    size_bytes: int | None
    pieces: AsyncGenerator[Buffer]


class StreamedResponse(Response):
    """A streamed answer as what a route returns.

    If the body cannot be made to its end, the connection is closed: no client takes a part for the
    whole.
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
            _LOG.info("%s breaks off at byte %d: %s", scope["path"], sent, reason)
            return
        except Exception:  # noqa: BLE001  # whatever it is, the client must notice and nobody else can
            _LOG.exception("%s breaks off at byte %d", scope["path"], sent)
            return
        if size_bytes in {None, sent}:  # else the client went away
            await send({"type": "http.response.body", "body": b""})
