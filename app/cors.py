"""Pages of other origins that may call the service from a browser: none, unless they are listed."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.answers import AnswerResponse
from app.middleware import App
from app.problems import Forbidden, problem_answer
from app.settings import Settings

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
TAKEN: Final = (
    "Accept", "Authorization", "Content-Digest", "Content-Encoding", "Content-Type",
    "Expected-Offset", "Idempotency-Key", "If-Match", "If-None-Match", "If-Range", "Last-Event-ID",
    "Producer-Epoch", "Producer-Id", "Producer-Sequence", "Range", "Traceparent",
)  # fmt: skip
"""Request headers that mean something here."""
SHOWN: Final = (
    "Accept-Ranges", "Allow", "Content-Range", "ETag", "Idempotency-Replayed", "Link", "Location",
    "Log-End-Offset", "Log-Explain", "Log-First-Offset", "Log-High-Watermark",
    "Log-Last-Stable-Offset", "Log-Leader-Epoch", "Log-Next-Offset", "Log-Start-Offset",
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
        allow_headers=TAKEN,
        expose_headers=SHOWN,
        max_age=MAX_AGE_S,
    )


class Cors(CORSMiddleware):
    """Starlette's, whose refusals are problem documents here."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what a browser asks before it calls, or let the application answer."""
        is_question = scope["type"] == "http" and scope["method"] == "OPTIONS"
        headers = Headers(scope=scope) if is_question else Headers()
        if "origin" in headers and "access-control-request-method" in headers:
            answer = self._explained(self.preflight_response(headers), headers, scope["path"])
            await answer(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _explained(self, answer: Response, headers: Headers, path: str) -> Response:
        if answer.status_code == 200:
            return answer
        error = Forbidden(bytes(answer.body).decode(), origin=headers["origin"])
        problem = problem_answer(error, path=quote(path))
        told = [one for one in answer.headers.raw if not one[0].startswith(b"content-")]
        return AnswerResponse(problem._replace(headers=[*problem.headers, *told]))
