"""Append and read record batches: bytes in, bytes out, nothing decoded."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.routes.records import APPENDED
from app.api.routes.shared import (
    APPEND_HEADERS,
    IDENTIFIED,
    READ_HEADERS,
    ExchangeDep,
    PartitionDep,
    body_of,
    problems,
)
from app.codecs.calls import AppendCall, read_call
from app.http.answers import AnswerResponse, StreamedResponse
from app.operations.append import append_partition
from app.operations.read import read, stream_read
from schemas.fetch import ReadParameters
from schemas.produce import AppendParameters

router = APIRouter(prefix="/v1/topics/{topic}/partitions/{partition}", dependencies=[IDENTIFIED])

MEDIA_TYPE = "application/vnd.kafka.recordbatch.v2"
BYTES = {"type": "string", "format": "binary"}


@router.post(
    "/batches",
    operation_id="appendBatches",
    tags=["produce"],
    dependencies=[APPEND_HEADERS],
    responses=APPENDED,
    openapi_extra=body_of(MEDIA_TYPE, "application/octet-stream", schema=BYTES),
)
async def append_batches(
    exchange: ExchangeDep, partition: PartitionDep, parameters: Annotated[AppendParameters, Query()]
) -> AnswerResponse:
    """Append record batches exactly as the client encoded them: all of them, or none."""
    call = AppendCall(parameters.acks)
    return AnswerResponse(await append_partition.append_batches(exchange, partition, call))


@router.get(
    "/batches",
    operation_id="readBatches",
    tags=["consume"],
    response_class=Response,  # no JSON
    dependencies=[READ_HEADERS],
    responses={
        200: {"description": "Whole batches as stored", "content": {MEDIA_TYPE: {"schema": BYTES}}},
        206: {
            "description": "The requested range of immutable batches",
            "content": {MEDIA_TYPE: {"schema": BYTES}},
        },
        304: {"description": "The client has the immutable batches"},
        **problems(404, 406, 409, 410, 416, 501),
    },
)
async def read_batches(
    request: Request,
    exchange: ExchangeDep,
    partition: PartitionDep,
    parameters: Annotated[ReadParameters, Query()],
) -> Response:
    """Read whole batches, byte for byte as stored; the first may begin below the offset."""
    call = read_call(parameters, request.scope["query_string"])
    if parameters.stream:
        streamed = await stream_read.stream_batches(exchange, partition, call, request.scope)
        return StreamedResponse(streamed)
    return AnswerResponse(await read.read_batches(exchange, partition, call))
