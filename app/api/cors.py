"""Pages of other origins that may call the service from a browser: none, unless they are listed."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.errors import Forbidden
from app.http.answers import AnswerResponse, App
from app.http.problems import problem_answer
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
