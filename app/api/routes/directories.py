"""Data directories: what lies in them, moves of partitions between them, the search for damage."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    LocalPartitionDep,
    answers,
    body_of,
    problems,
    ref,
)
from app.http.answers import AnswerResponse
from app.operations import directories as operations
from app.operations.request_content import parse_model
from schemas.directories import DataDirectoryList, MoveList, MovePartition, MoveReport, ScrubReport

router = APIRouter(prefix="/v1", tags=["maintenance"], dependencies=[IDENTIFIED])


@router.get(
    "/directories",
    operation_id="listDirectories",
    responses={
        **answers(200, DataDirectoryList, "The data directories, the preferred one first"),
        **problems(501),
    },
)
async def list_directories(exchange: ExchangeDep) -> AnswerResponse:
    """List the data directories, their partitions and free space."""
    return AnswerResponse(await operations.list_directories(exchange.service))


@router.get(
    "/moves",
    operation_id="listMoves",
    responses={**answers(200, MoveList, "The newest first"), **problems(501)},
)
async def list_moves(exchange: ExchangeDep) -> AnswerResponse:
    """List the moves of partitions between data directories since the start."""
    return AnswerResponse(await operations.list_moves(exchange.service))


@router.get(
    "/scrub",
    operation_id="getScrubReport",
    responses={**answers(200, ScrubReport, "The result of the last scrub"), **problems(501)},
)
async def get_scrub_report(exchange: ExchangeDep) -> AnswerResponse:
    """Return the result of the last scrub; `scrub_interval_ms` turns scrubbing on."""
    return AnswerResponse(operations.get_scrub_report(exchange.service))


@router.get(
    "/topics/{topic}/partitions/{partition}/move",
    operation_id="getMove",
    responses={**answers(200, MoveReport, "The progress of the move"), **problems(404, 501)},
)
async def get_move(exchange: ExchangeDep, partition: LocalPartitionDep) -> AnswerResponse:
    """Return the data directory of a partition, and the progress of its last move."""
    return AnswerResponse(await operations.get_move(exchange.service, partition))


@router.post(
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
        await operations.move_partition(exchange.service, partition, wanted.directory)
    )
