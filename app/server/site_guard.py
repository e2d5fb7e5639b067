"""The outermost ASGI layer: refuses foreign hosts, and changes from pages of other sites.

`app.wire` leaves every request that a page could have sent to ASGI, so none bypasses this check.
"""

from __future__ import annotations

from time import perf_counter

from app.api.explanations import explained
from app.errors import CrossSiteRequest, MisdirectedRequest
from app.http.answers import App, Receive, Scope, Send, send_answer
from app.http.ingest_urls import hide_token
from app.http.request_checks import trace_of
from app.operations.service import Service
from app.security.sites import PROBES
from app.telemetry.refusals import count_problem


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
        count_problem(service.telemetry, error, scope["path"])
        await send_answer(send, answer, trace)
        seconds = perf_counter() - started
        service.journal.answered(
            "other", answer.status, seconds, sent_bytes=len(answer.body), scope=scope
        )
