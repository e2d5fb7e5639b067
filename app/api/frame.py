"""What happens to every request that FastAPI serves: trace, counting, access log, odd paths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final
from urllib.parse import quote, unquote

from app.api.rest_v2.media import error_answer, is_for_proxies
from app.http.answers import CODER, Answer, App, Message, Receive, Scope, Send
from app.http.problems import problem_answer
from app.http.request_checks import hide_token, trace_of
from app.http.slow_clients import SEND_NOW
from app.operations.content_coding import coded
from app.operations.ingest.hec import hec_error, is_hec, normal_path
from app.operations.ingest.otlp import is_otlp, status_answer
from app.operations.service import Service
from app.security.rules import CALLER_KEY

_AS_SENT: Final = "/%!$&'()*+,;=:@"


def path_as_sent(scope: Scope) -> str:
    """Return the path of a request as a URI, without bare bytes: what a problem names."""
    raw: bytes = scope["raw_path"]
    return quote(raw.partition(b"?")[0], safe=_AS_SENT)


class Frame:
    """A layer around the application; what passes through it is counted under its operationId."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = perf_counter()
        scope["path"] = _path_of(scope)
        hide_token(scope)
        head = dict(scope["headers"])
        trace = trace_of(head)
        scope[CODER] = partial(coded, self._service, head)
        method = scope["method"]
        if method == "HEAD":
            scope, receive, send = _as_get(scope, receive, send)
        status = sent_bytes = 0

        def count(size_bytes: int) -> None:
            nonlocal sent_bytes
            sent_bytes += size_bytes
            if (caller := scope.get(CALLER_KEY)) is not None:
                caller.sent(size_bytes, status)

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if trace is not None:
                    message["headers"] = [*message["headers"], (b"traceparent", trace)]
            else:
                count(len(message.get("body", b"")))
            await send(message)

        extensions = scope.get("extensions", {})
        send_now: Callable[[bytes], bool] | None = extensions.get(SEND_NOW)
        if send_now is not None:

            def framed_now(data: bytes) -> bool:
                is_sent = send_now(data)
                if is_sent:
                    count(len(data))
                return is_sent

            scope["extensions"] = {**extensions, SEND_NOW: framed_now}
        try:
            await self._app(scope, receive, framed)
        except Exception:
            if status == 0:  # else it has its problem document, and its stack is in the log
                raise
        finally:
            scope["extensions"] = extensions  # or the scope would refer to itself
            seconds = perf_counter() - started
            asked = {**scope, "method": method}
            self._service.journal.answered(
                _operation_of(scope), status, seconds, sent_bytes=sent_bytes, scope=asked
            )


def _operation_of(scope: Scope) -> str:
    """Return the operation that was asked for; a method that a path does not have asks for none."""
    route = scope.get("route")
    if scope["method"] not in getattr(route, "methods", ()):
        return "other"
    return getattr(route, "operation_id", None) or "other"


def _as_get(scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
    """Return a HEAD request as a GET whose body is not sent.

    Once the head is sent, the body's producer sees a disconnected client, so an endless answer
    ends. A HEAD has no ranges (RFC 9110, 14.2).
    """
    has_answered = asyncio.Event()

    async def receive_until_answered() -> Message:
        coming = asyncio.ensure_future(receive())
        answered = asyncio.ensure_future(has_answered.wait())
        try:
            await asyncio.wait({coming, answered}, return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else {"type": "http.disconnect"}
        finally:
            coming.cancel()
            answered.cancel()

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            has_answered.set()
            await send(message)
            await send({"type": "http.response.body", "body": b""})

    headers = [header for header in scope["headers"] if header[0] != b"range"]
    extensions = {**scope.get("extensions", {})}
    extensions.pop(SEND_NOW, None)  # it would send a body
    asked = {**scope, "method": "GET", "headers": headers, "extensions": extensions}
    return asked, receive_until_answered, send_head


def _path_of(scope: Scope) -> str:
    """Return the path with encoded slashes left encoded: they are part of a name, not of the path.

    So a topic called `..%2Fetc` reaches the operation as that name, which no topic can have.
    """
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    # An exporter whose endpoint ends in a slash appends `/v1/traces` all the same.
    path = path.replace("/ingest/otlp//v1/", "/ingest/otlp/v1/")
    if is_hec(path):
        path = normal_path(path)
    if b"%2f" not in raw.lower():
        return path
    pieces = raw.partition(b"?")[0].replace(b"%2f", b"%2F").split(b"%2F")
    return "%2F".join(unquote(piece.decode("latin-1")) for piece in pieces)


def explained(error: Exception, scope: Scope) -> Answer:
    """Return a problem document; or what a proxy, an OTLP or a Splunk collector would answer."""
    head = dict(scope["headers"])
    path, trace = path_as_sent(scope), trace_of(head)
    if is_for_proxies(scope["path"]):
        return error_answer(error, path=path, trace=trace)
    if is_otlp(scope["path"]):
        return status_answer(error, path=path, trace=trace, head=head)
    if is_hec(scope["path"]):
        return hec_error(error, path=path, trace=trace, head=head)
    return problem_answer(error, path=path, trace=trace)
