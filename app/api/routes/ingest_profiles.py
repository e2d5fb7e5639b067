"""Ingest profiles and ingest tokens: who may send to a topic, and how bodies become records."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    TopicPath,
    answers,
    body_of,
    problems,
    ref,
)
from app.http.answers import AnswerResponse
from app.operations.ingest import administration as operations
from app.operations.request_content import parse_model
from schemas.ingest import (
    CreatedIngestToken,
    IngestProfile,
    IngestTokenId,
    IngestTokenList,
    PutIngestProfile,
)

router = APIRouter(prefix="/v1/topics", tags=["produce"], dependencies=[IDENTIFIED])

PROFILE = "/{topic}/ingest-profile"
TOKENS = "/{topic}/ingest-tokens"


async def _conditions(
    *,
    if_match: Annotated[
        str | None,
        Header(description="ETags: 412 unless the profile has one of them. Default: none"),
    ] = None,
    if_none_match: Annotated[
        str | None,
        Header(description="ETags, or `*`: 412 if the profile has one, or exists. Default: none"),
    ] = None,
) -> None:
    """Document the conditions of a change; the operation reads them itself."""


async def _known(
    if_none_match: Annotated[
        str | None, Header(description="ETag: 304 if the profile still has it. Default: none")
    ] = None,
) -> None:
    """Document the condition of a read; the operation reads it itself."""


@router.get(
    PROFILE,
    operation_id="getIngestProfile",
    dependencies=[Depends(_known)],
    responses={
        **answers(200, IngestProfile, "The profile, with its ETag"),
        304: {"description": "The profile still has the ETag of If-None-Match"},
        **problems(404),
    },
)
async def get_ingest_profile(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Return how a topic's deliveries are parsed and verified, without the secrets."""
    return AnswerResponse(operations.get_profile(exchange, topic))


@router.put(
    PROFILE,
    operation_id="putIngestProfile",
    dependencies=[Depends(_conditions)],
    responses={
        **answers(200, IngestProfile, "Replaced, and on disk"),
        **answers(201, IngestProfile, "Stored for the first time, and on disk"),
        **problems(404, 408, 412, 413, 415, 422, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(PutIngestProfile),
        example={
            "key": {"pointer": "/repository/full_name"},
            "signature": {"scheme": "github", "secrets": ["a long random text"]},
        },
    ),
)
async def put_ingest_profile(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Replace how a topic's deliveries are parsed and verified; secrets not sent are kept."""
    wanted = parse_model(await exchange.control_body(), PutIngestProfile)
    return AnswerResponse(await operations.put_profile(exchange, topic, wanted))


@router.delete(
    PROFILE,
    operation_id="deleteIngestProfile",
    dependencies=[Depends(_conditions)],
    status_code=204,
    responses={204: {"description": "Deleted durably"}, **problems(404, 412, 507)},
)
async def delete_ingest_profile(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Delete a topic's ingest profile with its secrets."""
    return AnswerResponse(await operations.delete_profile(exchange, topic))


@router.post(
    TOKENS,
    operation_id="createIngestToken",
    status_code=201,
    responses={
        **answers(201, CreatedIngestToken, "The token; it is not returned again"),
        **problems(404, 422, 507),
    },
)
async def create_ingest_token(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Create a token for appends to one topic, for senders that can only be given a URL."""
    return AnswerResponse(await operations.create_token(exchange, topic))


@router.get(
    TOKENS,
    operation_id="listIngestTokens",
    responses={**answers(200, IngestTokenList, "All tokens of the topic"), **problems(404)},
)
async def list_ingest_tokens(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """List the ids of a topic's ingest tokens, the oldest first."""
    return AnswerResponse(operations.list_tokens(exchange, topic))


@router.delete(
    TOKENS + "/{id}",
    operation_id="deleteIngestToken",
    status_code=204,
    responses={204: {"description": "Revoked durably"}, **problems(404, 507)},
)
async def delete_ingest_token(
    exchange: ExchangeDep,
    topic: TopicPath,
    token_id: Annotated[IngestTokenId, Path(alias="id")],
) -> AnswerResponse:
    """Revoke an ingest token; requests with it are refused from then on."""
    return AnswerResponse(await operations.delete_token(exchange, topic, token_id))
