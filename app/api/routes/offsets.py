"""Marks of a log, and look-ups by time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    PartitionDep,
    TopicPath,
    answers,
    problems,
)
from app.http.answers import AnswerResponse
from app.operations.read import offsets as operations
from schemas.offsets import (
    OffsetAtParameters,
    OffsetAtTime,
    OffsetParameters,
    Offsets,
    TimestampOrName,
    TopicOffsets,
)

router = APIRouter(prefix="/v1/topics/{topic}", tags=["offsets"], dependencies=[IDENTIFIED])


@router.get(
    "/partitions/{partition}/offsets",
    operation_id="getOffsets",
    responses={**answers(200, Offsets, "The offsets of the log"), **problems(404)},
)
async def get_offsets(
    exchange: ExchangeDep,
    partition: PartitionDep,
    timestamp: Annotated[TimestampOrName | None, Query(include_in_schema=False)] = None,
) -> AnswerResponse:
    """Return log start, last stable offset, high watermark and log end.

    Appends accept the ETag of the response in `If-Match`.
    """
    if timestamp is not None:  # before getOffsetAt there was this; clients still send it
        return AnswerResponse(await operations.get_offset_at(exchange, partition, timestamp))
    return AnswerResponse(await operations.get_offsets(partition))


@router.get(
    "/partitions/{partition}/offset-at",
    operation_id="getOffsetAt",
    responses={**answers(200, OffsetAtTime, "The offset at that time"), **problems(404, 413)},
)
async def get_offset_at(
    exchange: ExchangeDep,
    partition: PartitionDep,
    parameters: Annotated[OffsetAtParameters, Query()],
) -> AnswerResponse:
    """Return the first offset at or after a time, or the offset of a name such as `latest`."""
    answer = await operations.get_offset_at(exchange, partition, parameters.timestamp)
    return AnswerResponse(answer)


@router.get(
    "/offsets",
    operation_id="getTopicOffsets",
    responses={**answers(200, TopicOffsets, "All partitions"), **problems(404, 413)},
)
async def get_topic_offsets(
    exchange: ExchangeDep, topic: TopicPath, parameters: Annotated[OffsetParameters, Query()]
) -> AnswerResponse:
    """Return the offsets of all partitions of a topic, or their offsets at a time."""
    answer = await operations.get_topic_offsets(exchange, topic, parameters.timestamp)
    return AnswerResponse(answer)
