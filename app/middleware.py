"""What happens to every request that FastAPI serves: trace, counting, access log, odd paths."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TypeAlias
from urllib.parse import unquote

from app.answers import Message, Receive, Scope, Send
from app.operations.service import Service

_LOG = logging.getLogger("app.access")

App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


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
        trace = dict(scope["headers"]).get(b"traceparent")
        status = 0

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if trace is not None:
                    message["headers"] = [*message["headers"], (b"traceparent", trace)]
            await send(message)

        try:
            await self._app(scope, receive, framed)
        except Exception:
            if status == 0:  # else it has its problem document, and its stack is in the log
                raise
        finally:
            seconds = perf_counter() - started
            route = scope.get("route")
            operation = getattr(route, "operation_id", None) or "other"
            self._service.telemetry.answered(operation, status, seconds)
            if self._service.settings.access_log:
                log_access(scope, status, seconds)


def log_access(scope: Scope, status: int, seconds: float) -> None:
    """Write one line about a request that was answered."""
    _LOG.info(
        "%s %s %d",
        scope["method"],
        scope["path"],
        status,
        extra={
            "duration_ms": round(seconds * 1000, 3),
            "client": (scope.get("client") or ("",))[0],
        },
    )


def _path_of(scope: Scope) -> str:
    """Return the path with encoded slashes left encoded: they are part of a name, not of the path.

    So a topic called `..%2Fetc` reaches the operation as that name, which no topic can have.
    """
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" not in raw.lower():
        return path
    pieces = raw.partition(b"?")[0].replace(b"%2f", b"%2F").split(b"%2F")
    return "%2F".join(unquote(piece.decode("latin-1")) for piece in pieces)
