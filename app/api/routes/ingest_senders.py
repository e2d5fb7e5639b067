"""Ingest for senders that have no API key: the token in the URL, and what they ask before."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from app.api.routes.ingest import INGEST_BODY, INGEST_HEADERS, INGEST_RESPONSES, PROBE_RESPONSES
from app.api.routes.shared import IDENTIFIED, ExchangeDep, TopicPath, problems
from app.codecs.calls import IngestCall
from app.http.answers import AnswerResponse
from app.operations.ingest import handshakes
from app.operations.ingest import ingest as operations
from schemas.produce import IngestParameters

router = APIRouter(prefix="/v1/topics", tags=["produce"], dependencies=[IDENTIFIED])

URL = "/{topic}/ingest/{token}"

# The path that a route sees has no token: `app.http.ingest_urls`.
TokenPath = Annotated[str, Path(description="An ingest token of the topic, from createIngestToken")]


async def _asked(
    webhook_request_origin: Annotated[
        str | None, Header(description="Host of the system that will send. Default: none")
    ] = None,
) -> None:
    """Document the header of a request for permission; the operation reads it itself."""


@router.post(
    URL,
    operation_id="ingestWithToken",
    dependencies=[INGEST_HEADERS],
    responses=INGEST_RESPONSES,
    openapi_extra=INGEST_BODY,
)
async def ingest_with_token(
    exchange: ExchangeDep,
    request: Request,
    topic: TopicPath,
    token: TokenPath,  # noqa: ARG001  # judged before the request is let in
    parameters: Annotated[IngestParameters, Query()],
) -> AnswerResponse:
    """Append a body as `ingest` does, for a sender that can only be given a URL."""
    call, query = IngestCall(parameters.split), request.scope["query_string"]
    return AnswerResponse(await operations.ingest(exchange, topic, call, query))


@router.get(URL, operation_id="checkIngestWithToken", responses=PROBE_RESPONSES)
async def check_ingest_with_token(
    exchange: ExchangeDep,
    request: Request,
    topic: TopicPath,
    token: TokenPath,  # noqa: ARG001  # as above
) -> AnswerResponse:
    """Answer the health check of a sender: 401 if its token is not valid."""
    return AnswerResponse(operations.probe(exchange, topic, request.scope["query_string"]))


@router.options(
    "/{topic}/ingest",
    operation_id="allowIngest",
    dependencies=[Depends(_asked)],
    response_class=Response,
    responses={200: {"description": "The sender may send"}, **problems(404)},
)
async def allow_ingest(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Give a sender of CloudEvents the permission that it asks for before it sends."""
    return AnswerResponse(handshakes.permission(topic, exchange.head, exchange.service.settings))


@router.options(
    URL,
    operation_id="allowIngestWithToken",
    dependencies=[Depends(_asked)],
    response_class=Response,
    responses={200: {"description": "The sender may send"}, **problems(404)},
)
async def allow_ingest_with_token(
    exchange: ExchangeDep,
    topic: TopicPath,
    token: TokenPath,  # noqa: ARG001  # as above
) -> AnswerResponse:
    """Give the same permission for the URL with a token."""
    return AnswerResponse(handshakes.permission(topic, exchange.head, exchange.service.settings))
