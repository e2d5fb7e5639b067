"""The outermost ASGI layer: refuses foreign hosts, and changes from pages of other sites.

`app.wire` leaves every request that a page could have sent to ASGI, so none bypasses this check.

Pages of other origins may call the service from a browser if they are listed; none is otherwise.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from app.api.frame import explained
from app.errors import CrossSiteRequest, Forbidden, MisdirectedRequest
from app.http.answers import AnswerResponse, App, Receive, Scope, Send, send_answer
from app.http.problems import problem_answer
from app.http.request_checks import hide_token, trace_of
from app.operations.service import Service
from app.security.sites import PROBES
from app.settings import Settings

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SHOWN: Final = (
    "Accept-Ranges", "Allow", "Content-Range", "ETag", "Idempotency-Replayed", "Link", "Location",
    "Log-End-Offset", "Log-Explain", "Log-First-Offset", "Log-High-Watermark",
    "Log-Id", "Log-Last-Stable-Offset", "Log-Leader-Epoch", "Log-Next-Offset", "Log-Start-Offset",
    "Retry-After", "Traceparent", "WWW-Authenticate",
)  # fmt: skip
"""Headers of answers that a page may see; a browser hides all others."""
MAX_AGE_S: Final = 600


def with_cors(app: App, settings: Settings) -> App:
    """Return the application as the listed origins may call it; the same one if there are none."""
    if not settings.cors_origins:
        return app
    return Cors(
        app,
        allow_origins=settings.cors_origins,
        allow_methods=METHODS,
        allow_headers=("*",),  # what tracing and event libraries add is ignored, not refused
        expose_headers=SHOWN,
        max_age=MAX_AGE_S,
    )


class Cors(CORSMiddleware):
    """Starlette's, whose refusals are problem documents here."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer what a browser asks before it calls."""
        answer = super().preflight_response(request_headers)
        if answer.status_code == 200:
            return answer
        return _Refusal(answer, request_headers["origin"])


class _Refusal(Response):
    """A refusal that says why in a problem document, with what a browser looks for."""

    def __init__(self, answer: Response, origin: str) -> None:
        super().__init__(status_code=answer.status_code)
        self._error = Forbidden(bytes(answer.body).decode(), origin=origin)
        self._told = [one for one in answer.headers.raw if not one[0].startswith(b"content-")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; it names the path that was asked for."""
        problem = problem_answer(self._error, path=quote(scope["path"]))
        told = problem._replace(headers=[*problem.headers, *self._told])
        await AnswerResponse(told)(scope, receive, send)


class SiteGuard:
    """Admits what `Sites` allows; refuses the rest before a route or its body is looked at."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PROBES:
            hide_token(scope)
            server = scope.get("server")
            try:
                self._service.sites.ensure_admitted(
                    scope["method"],
                    scope["scheme"],
                    scope["headers"],
                    server[0] if server else "",
                )
            except (CrossSiteRequest, MisdirectedRequest) as error:
                await self._refuse(error, scope, send)
                return
        await self._app(scope, receive, send)

    async def _refuse(self, error: Exception, scope: Scope, send: Send) -> None:
        started = perf_counter()
        trace = trace_of(dict(scope["headers"]))
        answer = explained(error, scope)
        service = self._service
        service.refusals.count(error, scope["path"])
        await send_answer(send, answer, trace)
        seconds = perf_counter() - started
        service.journal.answered(
            "other", answer.status, seconds, sent_bytes=len(answer.body), scope=scope
        )
