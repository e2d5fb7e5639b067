"""Liveness, readiness, metrics and limits: answered whatever the service is doing."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter, Request, Response

from app.api.routes.shared import IDENTIFIED, ServiceDep, answers, problems
from app.codecs.receipts import to_json
from app.errors import ServiceError
from app.http.answers import NO_STORE, Answer, AnswerResponse, json_answer
from app.limits.admission import Phase
from app.limits.system_limits import system_limits
from app.operations.service import Service
from app.security.authority import peer_of
from engine.errors import EngineError
from schemas.health import Limits, Liveness, Readiness

router = APIRouter(tags=["service"], dependencies=[IDENTIFIED])

_NAMING: Final = frozenset({"detail", "offline_logs"})
"""Members of a readiness report that name topics, directories or files."""

_METRICS: Final = """\
# HELP tidelog_log_end_offset End of the log, exclusive (Kafka's LogEndOffset)
# TYPE tidelog_log_end_offset gauge
tidelog_log_end_offset{partition="0",topic="flights"} 3.0
"""


@router.get(
    "/livez", operation_id="getLiveness", responses=answers(200, Liveness, "The process is running")
)
async def get_liveness() -> AnswerResponse:
    """Return 200 while the process is running, even if it is recovering."""
    return AnswerResponse(json_answer(b'{"status":"live"}'))


@router.get(
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
    status = 200 if report["status"] == Phase.READY.value else 503
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


@router.get(
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


@router.get(
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
