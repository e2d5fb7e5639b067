"""Fetch from several partitions at once, or from all of a topic."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query

from app.api.routes.shared import IDENTIFIED, ExchangeDep, TopicPath, body_of, problems, ref
from app.http.answers import AnswerResponse
from app.operations.read.fetch_many import fetch_many as run_fetch
from app.operations.read.read_topic import read_topic as read_page
from app.operations.request_content import parse_model
from schemas.fetch_many import (
    FetchPage,
    FetchPageWithStringOffsets,
    FetchRequest,
    TopicPage,
    TopicPageWithStringOffsets,
    TopicReadParameters,
)

router = APIRouter(prefix="/v1", tags=["consume"], dependencies=[IDENTIFIED])

EXAMPLE: Final = {
    "partitions": [
        {"topic": "flights", "partition": 0, "offset": 41},
        {"topic": "flights", "partition": 1, "offset": "latest"},
    ],
    "max_bytes": 1048576,
    "max_wait_ms": 0,
}


@router.post(
    "/fetch",
    operation_id="fetchMany",
    responses={
        200: {
            "description": "An entry for each partition, in the order of the request",
            "content": {
                "application/json": {"schema": ref(FetchPage)},
                "application/json;offsets=string": {"schema": ref(FetchPageWithStringOffsets)},
                "multipart/mixed": {
                    "schema": {
                        "type": "string",
                        "format": "binary",
                        "description": "A part for each partition: the response of readBatches",
                    }
                },
            },
        },
        **problems(406, 408, 413, 415, 422),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(FetchRequest),
        example=EXAMPLE,
    ),
)
async def fetch_many(exchange: ExchangeDep) -> AnswerResponse:
    """Read from several partitions with one wait and one byte budget; each can fail alone."""
    wanted = parse_model(await exchange.control_body(), FetchRequest)
    return AnswerResponse(await run_fetch(exchange, wanted))


@router.get(
    "/topics/{topic}/records",
    operation_id="readTopic",
    responses={
        200: {
            "description": "One page of records, and the token of the next page",
            "content": {
                "application/json": {"schema": ref(TopicPage)},
                "application/json;offsets=string": {"schema": ref(TopicPageWithStringOffsets)},
            },
        },
        **problems(404, 409, 410, 413, 416),
    },
)
async def read_topic(
    exchange: ExchangeDep,
    topic: TopicPath,
    parameters: Annotated[TopicReadParameters, Query()],
) -> AnswerResponse:
    """Read all partitions of a topic, page by page; the page token holds every next offset."""
    return AnswerResponse(await read_page(exchange, topic, parameters))
