"""The service itself: what it is, who asks, and what it is configured with."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, Request

from app.api.routes.shared import IDENTIFIED, ExchangeDep, ServiceDep, answers, problems
from app.codecs.receipts import to_json
from app.http.answers import JSON, NO_STORE, Answer, AnswerResponse, json_answer
from app.operations import configuration
from app.operations.request_content import negotiate
from app.operations.service import Service
from schemas.service import ApiKeyList, Caller, ServiceInfo, SettingList, TopicConfigList

router = APIRouter(tags=["service"], dependencies=[IDENTIFIED])

_HTML: Final = b"text/html"
_VARY: Final = (b"vary", b"accept")
_CONSOLE: Final = "/console/"


def _info(service: Service) -> bytes:
    prefix = service.settings.url_prefix
    return to_json(
        {
            "name": "tidelog",
            "version": version("tidelog"),
            "backend": service.store.backend,
            "links": {
                "console": prefix + _CONSOLE,
                "docs": f"{prefix}/docs",
                "openapi": f"{prefix}/openapi.json",
                "topics": f"{prefix}/v1/topics",
                "limits": f"{prefix}/v1/limits",
                "readiness": f"{prefix}/readyz",
                "metrics": f"{prefix}/metrics",
            },
        }
    )


@router.get(
    "/v1",
    operation_id="getService",
    responses={**answers(200, ServiceInfo, "Name, version, backend and links"), **problems()},
)
async def get_service(service: ServiceDep) -> AnswerResponse:
    """Return name, version and links of the service. `/` returns the same, except to browsers."""
    return AnswerResponse(json_answer(_info(service)))


@router.get("/", operation_id="getService", include_in_schema=False)
async def get_root(request: Request, service: ServiceDep) -> AnswerResponse:
    """Answer as `/v1`; redirect a browser, which prefers HTML to JSON, to the console."""
    if negotiate(dict(request.scope["headers"]).get(b"accept"), (JSON, _HTML)) == _HTML:
        prefix = service.settings.url_prefix  # where it is not known, the URL is relative
        location = (b"location", (prefix + _CONSOLE if prefix else _CONSOLE[1:]).encode())
        return AnswerResponse(Answer(302, [location, NO_STORE, _VARY], b""))
    return AnswerResponse(json_answer(_info(service), headers=[_VARY]))


@router.options("/", operation_id="getService", include_in_schema=False)
async def ask_root() -> AnswerResponse:
    """Answer HAProxy's default health check: the service answers."""
    return AnswerResponse(Answer(204, [(b"allow", b"GET, HEAD, OPTIONS"), NO_STORE], b""))


@router.get(
    "/v1/caller",
    operation_id="getCaller",
    responses={**answers(200, Caller, "Name and scopes"), **problems()},
)
async def get_caller(exchange: ExchangeDep) -> AnswerResponse:
    """Return the caller's name, and what its credentials allow."""
    return AnswerResponse(configuration.get_caller(exchange))


@router.get(
    "/v1/settings",
    operation_id="getSettings",
    responses={**answers(200, SettingList, "Settings by name"), **problems()},
)
async def get_settings(exchange: ExchangeDep) -> AnswerResponse:
    """List every setting of the service: value, source and purpose."""
    return AnswerResponse(configuration.get_settings(exchange.service))


@router.get(
    "/v1/keys",
    operation_id="listKeys",
    responses={**answers(200, ApiKeyList, "The keys that are accepted"), **problems()},
)
async def list_keys(exchange: ExchangeDep) -> AnswerResponse:
    """List the API keys: names and scopes; the keys themselves are not stored."""
    return AnswerResponse(configuration.list_keys(exchange.service))


@router.get(
    "/v1/topic-configs",
    operation_id="listTopicConfigs",
    responses={**answers(200, TopicConfigList, "Every topic configuration"), **problems()},
)
async def list_topic_configs(exchange: ExchangeDep) -> AnswerResponse:
    """List Kafka's topic configurations: default, accepted values and purpose of each."""
    return AnswerResponse(configuration.list_topic_configs(exchange.service))
