"""The service: its description and configuration, health and metrics, data directories."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, Request, Response

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    LocalPartitionDep,
    ServiceDep,
    answers,
    body_of,
    problems,
    ref,
)
from app.codecs.receipts import to_json
from app.errors import ServiceError
from app.http.answers import JSON, NO_STORE, Answer, AnswerResponse, json_answer
from app.limits.system_limits import system_limits
from app.operations import configuration, directories, history
from app.operations.request_content import negotiate, parse_model
from app.operations.service import Service
from app.security.authority import peer_of
from engine.errors import EngineError
from schemas.directories import DataDirectoryList, MoveList, MovePartition, MoveReport, ScrubReport
from schemas.health import Limits, Liveness, Readiness
from schemas.history import History
from schemas.service import ApiKeyList, Caller, ServiceInfo, SettingList, TopicConfigList

service_router = APIRouter(tags=["service"], dependencies=[IDENTIFIED])

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


@service_router.get(
    "/v1",
    operation_id="getService",
    responses={**answers(200, ServiceInfo, "Name, version, backend and links"), **problems()},
)
async def get_service(service: ServiceDep) -> AnswerResponse:
    """Return name, version and links of the service. `/` returns the same, except to browsers."""
    return AnswerResponse(json_answer(_info(service)))


@service_router.get("/", operation_id="getService", include_in_schema=False)
async def get_root(request: Request, service: ServiceDep) -> AnswerResponse:
    """Answer as `/v1`; redirect a browser, which prefers HTML to JSON, to the console."""
    if negotiate(dict(request.scope["headers"]).get(b"accept"), (JSON, _HTML)) == _HTML:
        prefix = service.settings.url_prefix  # where it is not known, the URL is relative
        location = (b"location", (prefix + _CONSOLE if prefix else _CONSOLE[1:]).encode())
        return AnswerResponse(Answer(302, [location, NO_STORE, _VARY], b""))
    return AnswerResponse(json_answer(_info(service), headers=[_VARY]))


@service_router.options("/", operation_id="getService", include_in_schema=False)
async def ask_root() -> AnswerResponse:
    """Answer HAProxy's default health check: the service answers."""
    return AnswerResponse(Answer(204, [(b"allow", b"GET, HEAD, OPTIONS"), NO_STORE], b""))


@service_router.get(
    "/v1/caller",
    operation_id="getCaller",
    responses={**answers(200, Caller, "Name and scopes"), **problems()},
)
async def get_caller(exchange: ExchangeDep) -> AnswerResponse:
    """Return the caller's name, and what its credentials allow."""
    return AnswerResponse(configuration.get_caller(exchange))


@service_router.get(
    "/v1/settings",
    operation_id="getSettings",
    responses={**answers(200, SettingList, "Settings by name"), **problems()},
)
async def get_settings(exchange: ExchangeDep) -> AnswerResponse:
    """List every setting of the service: value, source and purpose."""
    return AnswerResponse(configuration.get_settings(exchange.service))


@service_router.get(
    "/v1/keys",
    operation_id="listKeys",
    responses={**answers(200, ApiKeyList, "The keys that are accepted"), **problems()},
)
async def list_keys(exchange: ExchangeDep) -> AnswerResponse:
    """List the API keys: names and scopes; the keys themselves are not stored."""
    return AnswerResponse(configuration.list_keys(exchange.service))


@service_router.get(
    "/v1/topic-configs",
    operation_id="listTopicConfigs",
    responses={**answers(200, TopicConfigList, "Every topic configuration"), **problems()},
)
async def list_topic_configs(exchange: ExchangeDep) -> AnswerResponse:
    """List Kafka's topic configurations: default, accepted values and purpose of each."""
    return AnswerResponse(configuration.list_topic_configs(exchange.service))


_NAMING: Final = frozenset({"archive", "damage", "detail", "offline_logs"})
"""Members of a readiness report that name topics, directories or files."""

_METRICS: Final = """\
# HELP tidelog_log_end_offset End of the log, exclusive (Kafka's LogEndOffset)
# TYPE tidelog_log_end_offset gauge
tidelog_log_end_offset{partition="0",topic="flights"} 3.0
"""


@service_router.get(
    "/livez", operation_id="getLiveness", responses=answers(200, Liveness, "The process is running")
)
async def get_liveness() -> AnswerResponse:
    """Return 200 while the process is running, even if it is recovering."""
    return AnswerResponse(json_answer(b'{"status":"live"}'))


@service_router.get(
    "/readyz",
    operation_id="getReadiness",
    responses={
        **answers(200, Readiness, "Requests are served"),
        **answers(503, Readiness, "Recovering, draining, or the disk is offline"),
    },
)
async def get_readiness(request: Request, service: ServiceDep) -> AnswerResponse:
    """Return whether requests are served, and the progress of a recovery."""
    report = service.readiness()
    if not _may_see_names(request, service):
        report = {name: value for name, value in report.items() if name not in _NAMING}
    status = 200 if service.is_ready else 503
    return AnswerResponse(json_answer(to_json(report), status=status))


def _may_see_names(request: Request, service: Service) -> bool:
    """Whether the caller may see names of topics and directories: who may read `/metrics`."""
    scope = request.scope
    server = scope.get("server")
    host = dict(scope["headers"]).get(b"host", b"")
    if not service.sites.accepts(host, server[0] if server else ""):
        return False
    try:
        return service.security.identify(
            "getMetrics", scope["headers"], peer_of(scope)
        ).grants.metrics
    except (EngineError, ServiceError):
        return False


@service_router.get(
    "/metrics",
    operation_id="getMetrics",
    response_class=Response,  # no JSON
    responses={
        200: {
            "description": "Prometheus' text format",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": _METRICS}},
        },
        **problems(),
    },
)
async def get_metrics(service: ServiceDep) -> AnswerResponse:
    """Return all metrics in Prometheus' text format."""
    body = await asyncio.to_thread(service.telemetry.exposition)
    content_type = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
    return AnswerResponse(Answer(200, [content_type, NO_STORE], body))


@service_router.get(
    "/v1/history",
    operation_id="getHistory",
    responses=answers(200, History, "The last 15 minutes") | problems(),
)
async def get_history(exchange: ExchangeDep) -> AnswerResponse:
    """Return what the service did in the last 15 minutes, for screens without a scraper.

    Sums of everything by about five seconds, the busiest topics by the minute, and the totals of
    now. It needs the scope `metrics`.
    """
    return AnswerResponse(await history.get_history(exchange))


@service_router.get(
    "/v1/limits",
    operation_id="getLimits",
    responses=answers(200, Limits, "Limits by name") | problems(),
)
async def get_limits(service: ServiceDep) -> AnswerResponse:
    """List every limit, by the names in 413 and 503 responses."""
    limits = service.settings.limits() | system_limits()
    store = service.store
    members = {"backend": store.backend, "durability": store.durability, "limits": limits}
    return AnswerResponse(json_answer(to_json(members)))


directories_router = APIRouter(prefix="/v1", tags=["maintenance"], dependencies=[IDENTIFIED])


@directories_router.get(
    "/directories",
    operation_id="listDirectories",
    responses={
        **answers(200, DataDirectoryList, "The data directories, the preferred one first"),
        **problems(501),
    },
)
async def list_directories(exchange: ExchangeDep) -> AnswerResponse:
    """List the data directories, their partitions and free space."""
    return AnswerResponse(await directories.list_directories(exchange.service))


@directories_router.get(
    "/moves",
    operation_id="listMoves",
    responses={**answers(200, MoveList, "The newest first"), **problems(501)},
)
async def list_moves(exchange: ExchangeDep) -> AnswerResponse:
    """List the moves of partitions between data directories since the start."""
    return AnswerResponse(await directories.list_moves(exchange.service))


@directories_router.get(
    "/scrub",
    operation_id="getScrubReport",
    responses={**answers(200, ScrubReport, "The result of the last scrub"), **problems(501)},
)
async def get_scrub_report(exchange: ExchangeDep) -> AnswerResponse:
    """Return the result of the last scrub; `scrub_interval_ms` turns scrubbing on."""
    return AnswerResponse(directories.get_scrub_report(exchange.service))


@directories_router.get(
    "/topics/{topic}/partitions/{partition}/move",
    operation_id="getMove",
    responses={**answers(200, MoveReport, "The progress of the move"), **problems(404, 501)},
)
async def get_move(exchange: ExchangeDep, partition: LocalPartitionDep) -> AnswerResponse:
    """Return the data directory of a partition, and the progress of its last move."""
    return AnswerResponse(await directories.get_move(exchange.service, partition))


@directories_router.post(
    "/topics/{topic}/partitions/{partition}/move",
    operation_id="movePartition",
    status_code=202,
    responses={
        **answers(202, MoveReport, "The move is queued; `getMove` returns its progress"),
        **answers(200, MoveReport, "The partition is there already"),
        **problems(404, 408, 413, 415, 416, 422, 501),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(MovePartition),
        example={"directory": "/disk-2/tidelog"},
    ),
)
async def move_partition(exchange: ExchangeDep, partition: LocalPartitionDep) -> AnswerResponse:
    """Move a partition to another data directory; appends and reads continue.

    One partition moves at a time, the others wait. The next start continues moves that a stop
    interrupted; until then the partition stays complete where it was.
    """
    wanted = parse_model(await exchange.control_body(), MovePartition)
    return AnswerResponse(
        await directories.move_partition(exchange.service, partition, wanted.directory)
    )
