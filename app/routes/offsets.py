"""Marks of a log, and look-ups by time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.answers import AnswerResponse
from app.operations import offsets as operations
from app.routes.shared import IDENTIFIED, ExchangeDep, PlaceDep, TopicPath, problems
from schemas.offsets import OffsetAtTime, OffsetParameters, Offsets, TopicOffsets

router = APIRouter(prefix="/v1/topics/{topic}", tags=["offsets"], dependencies=[IDENTIFIED])


@router.get(
    "/partitions/{partition}/offsets",
    operation_id="getOffsets",
    responses={
        200: {"model": Offsets | OffsetAtTime, "description": "Marks, or the answer to a time"},
        **problems(404),
    },
)
async def get_offsets(
    exchange: ExchangeDep, place: PlaceDep, parameters: Annotated[OffsetParameters, Query()]
) -> AnswerResponse:
    """Tell where the log starts, is stable, is committed and ends; or which offset a time has."""
    if parameters.timestamp is None:
        return AnswerResponse(operations.get_offsets(place))
    answer = await operations.get_offset_at(exchange.service, place, parameters.timestamp)
    return AnswerResponse(answer)


@router.get(
    "/offsets",
    operation_id="getTopicOffsets",
    responses={
        200: {"model": TopicOffsets, "description": "All partitions"},
        **problems(404),
    },
)
async def get_topic_offsets(
    exchange: ExchangeDep, topic: TopicPath, parameters: Annotated[OffsetParameters, Query()]
) -> AnswerResponse:
    """Tell the same of all partitions of a topic, in one snapshot."""
    answer = await operations.get_topic_offsets(exchange.service, topic, parameters.timestamp)
    return AnswerResponse(answer)
