"""Ingest for senders of Splunk's HTTP Event Collector, whose path is fixed."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request

from app.api.routes.shared import EVERYWHERE, IDENTIFIED, ExchangeDep, Responses, answers, ref
from app.http.answers import AnswerResponse
from app.operations.ingest import hec
from schemas.produce import HecForm, HecResult

router = APIRouter(prefix=hec.PATH, tags=["produce"], dependencies=[IDENTIFIED])

FormPath = Annotated[HecForm, Path(description="`event`: JSON objects; `raw`: lines of text.")]
_EVENTS: Final = '{"event":"flight 1141 landed"}{"event":{"flight":1714},"host":"ewr-1"}'
_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"type": "string", "description": "Events, one after the other; or lines"},
            "example": _EVENTS,
        }
    },
}


def _error(status: int) -> dict[str, Any]:
    phrase = HTTPStatus(status).phrase
    example = {"text": phrase, "code": hec.code_of(status)}
    content = {"application/json": {"schema": ref(HecResult), "example": example}}
    return {"description": phrase, "content": content}


def _errors(*statuses: int) -> Responses:
    return {status: _error(status) for status in sorted({*EVERYWHERE, *statuses})}


@router.post(
    "/{form}",
    operation_id="ingestHec",
    responses={
        **answers(200, HecResult, "The records are on disk"),
        **_errors(404, 408, 413, 415, 504, 507),
    },
    openapi_extra={"requestBody": _BODY},
)
async def ingest_hec(exchange: ExchangeDep, request: Request, form: FormPath) -> AnswerResponse:
    """Append what a sender of Splunk's HTTP Event Collector sends.

    Its token is an ingest token, which names the topic: `Authorization: Splunk tli_…`. With
    `event`, each JSON object is a record as it was sent; with `raw`, each line.
    """
    query: bytes = request.scope["query_string"]
    topic: str = request.path_params["topic"]
    return AnswerResponse(await hec.ingest_hec(exchange, topic, form, query))


@router.get(
    "/health",
    operation_id="checkHec",
    responses={
        **answers(200, HecResult, "The token's topic accepts requests"),
        **_errors(),
    },
)
async def check_hec(exchange: ExchangeDep, request: Request) -> AnswerResponse:
    """Answer the health check of a sender of Splunk's HTTP Event Collector."""
    exchange.service.topic(request.path_params["topic"])
    return AnswerResponse(hec.healthy())


@router.options(
    "/{form}",
    operation_id="allowHec",
    responses={
        **answers(200, HecResult, "The token is valid"),
        **_errors(),
    },
)
async def allow_hec(exchange: ExchangeDep, request: Request, form: FormPath) -> AnswerResponse:  # noqa: ARG001  # of the path
    """Answer what Docker's logging driver asks when a container starts."""
    exchange.service.topic(request.path_params["topic"])
    return AnswerResponse(hec.success())
