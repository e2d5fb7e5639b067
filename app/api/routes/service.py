"""The service itself: what it is and where to go on."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, Request

from app.api.routes.shared import IDENTIFIED, answers, problems
from app.codecs.receipts import to_json
from app.http.answers import JSON, NO_STORE, Answer, AnswerResponse, json_answer
from app.operations.request_content import negotiate
from schemas.service import ServiceInfo

router = APIRouter(tags=["service"], dependencies=[IDENTIFIED])

_HTML: Final = b"text/html"
_VARY: Final = (b"vary", b"accept")
_CONSOLE: Final = "/console/"


def _info() -> bytes:
    return to_json(
        {
            "name": "tidelog",
            "version": version("tidelog"),
            "backend": "local",
            "links": {
                "console": _CONSOLE,
                "docs": "/docs",
                "openapi": "/openapi.json",
                "topics": "/v1/topics",
                "limits": "/v1/limits",
                "readiness": "/readyz",
                "metrics": "/metrics",
            },
        }
    )


@router.get(
    "/v1",
    operation_id="getService",
    responses={**answers(200, ServiceInfo, "Name, version, backend and links"), **problems()},
)
async def get_service() -> AnswerResponse:
    """Tell what this service is, and where to go on. `/` answers the same to programs."""
    return AnswerResponse(json_answer(_info()))


@router.get("/", operation_id="getService", include_in_schema=False)
async def get_root(request: Request) -> AnswerResponse:
    """Answer as `/v1`; redirect a browser, which prefers HTML to JSON, to the console."""
    if negotiate(dict(request.scope["headers"]).get(b"accept"), (JSON, _HTML)) == _HTML:
        location = (b"location", _CONSOLE[1:].encode())  # relative: a proxy may add a prefix
        return AnswerResponse(Answer(302, [location, NO_STORE, _VARY], b""))
    return AnswerResponse(json_answer(_info(), headers=[_VARY]))
