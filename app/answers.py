"""An HTTP answer as a value, and how it is sent: the fast lane and the routes share both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, NamedTuple, TypeAlias

from starlette.responses import Response

from engine.types import Buffer

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]
Body: TypeAlias = bytes | bytearray

SEND_BYTES: Final = 256 * 1024
"""An answer goes out in pieces of this size, each waiting for the one before: a slow reader holds
its answer, which admission counts, and no second copy in the transport."""

JSON: Final = b"application/json"
NDJSON: Final = b"application/x-ndjson"
PROBLEM: Final = b"application/problem+json"
RECORD_BATCH: Final = b"application/vnd.kafka.recordbatch.v2"
NO_STORE: Final = (b"cache-control", b"no-store")


class Answer(NamedTuple):
    """Status, headers without Content-Length, and body."""

    status: int
    headers: Headers
    body: Buffer


def json_answer(body: bytes, *, status: int = 200, headers: Headers | None = None) -> Answer:
    """Return a JSON answer that no cache keeps."""
    return Answer(status, [(b"content-type", JSON), NO_STORE, *(headers or ())], body)


class AnswerResponse(Response):
    """An answer as what a route returns; sent exactly as the fast lane sends it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(status_code=answer.status)
        self.answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        await send_answer(send, self.answer)


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
