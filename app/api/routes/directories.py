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
from schemas.directories import DataDirectoryList, MovePartition, MoveReport, ScrubReport

router = APIRouter(prefix="/v1", tags=["maintenance"], dependencies=[IDENTIFIED])


@router.get(
    "/directories",
    operation_id="listDirectories",
    responses={**answers(200, DataDirectoryList, "The preferred one first"), **problems(501)},
)
async def list_directories(exchange: ExchangeDep) -> AnswerResponse:
    """List the data directories: where partitions can lie, and what lies there."""
    return AnswerResponse(await operations.list_directories(exchange.service))


@router.get(
    "/scrub",
    operation_id="getScrubReport",
    responses={**answers(200, ScrubReport, "What the last search found"), **problems(501)},
)
async def get_scrub_report(exchange: ExchangeDep) -> AnswerResponse:
    """Tell what the last search for damage found; there are any if `scrub_interval_ms` is set."""
    return AnswerResponse(operations.get_scrub_report(exchange.service))


@router.get(
    "/topics/{topic}/partitions/{partition}/move",
    operation_id="getMove",
    responses={**answers(200, MoveReport, "How far it is"), **problems(404, 501)},
)
async def get_move(exchange: ExchangeDep, partition: LocalPartitionDep) -> AnswerResponse:
    """Tell where a partition lies, and how its last move is going."""
    return AnswerResponse(await operations.get_move(exchange.service, partition))


@router.post(
    "/topics/{topic}/partitions/{partition}/move",
    operation_id="movePartition",
    status_code=202,
    responses={
        **answers(202, MoveReport, "It will be moved; `getMove` tells how far that is"),
        **answers(200, MoveReport, "It lies there already"),
        **problems(404, 408, 413, 415, 416, 422, 501),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(MovePartition),
        example={"directory": "/disk-2/tidelog"},
    ),
)
async def move_partition(exchange: ExchangeDep, partition: LocalPartitionDep) -> AnswerResponse:
    """Move a partition to another data directory; appends and reads go on meanwhile.

    One partition moves at a time, the others wait. What a stop interrupts the next start goes on
    with; meanwhile a partition is where it was, whole.
    """
    wanted = parse_model(await exchange.control_body(), MovePartition)
    return AnswerResponse(
        await operations.move_partition(exchange.service, partition, wanted.directory)
    )
