"""Roll, flush, retention, deletion of records, truncation, compaction."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    LocalPartitionDep,
    PartitionDep,
    answers,
    body_of,
    problems,
    ref,
)
from app.http.answers import AnswerResponse
from app.operations import maintenance as operations
from app.operations.request_content import parse_model
from schemas.maintenance import (
    CompactionRange,
    CompactionReport,
    DeleteRecords,
    DeleteRecordsReport,
    FlushReport,
    RetentionParameters,
    RetentionReport,
    RollReport,
    TruncateLog,
    TruncateReport,
)

router = APIRouter(prefix="/v1/topics/{topic}/partitions/{partition}", dependencies=[IDENTIFIED])


@router.post(
    "/roll",
    operation_id="rollSegment",
    tags=["maintenance"],
    responses={
        **answers(200, RollReport, "Whether a segment was opened"),
        **problems(404, 501, 507),
    },
)
async def roll_segment(partition: LocalPartitionDep) -> AnswerResponse:
    """Seal the active segment and open the next one; an empty active segment is kept."""
    return AnswerResponse(await operations.roll_segment(partition))


@router.post(
    "/flush",
    operation_id="flushLog",
    tags=["maintenance"],
    responses={
        **answers(200, FlushReport, "The offsets after the flush"),
        **problems(404, 501, 507),
    },
)
async def flush_log(partition: LocalPartitionDep) -> AnswerResponse:
    """Sync everything to disk, including indexes and snapshots."""
    return AnswerResponse(await operations.flush_log(partition))


@router.post(
    "/retention",
    operation_id="runRetention",
    tags=["maintenance"],
    responses={**answers(200, RetentionReport, "The removed segments"), **problems(404, 501, 507)},
)
async def run_retention(
    partition: LocalPartitionDep,
    parameters: Annotated[RetentionParameters, Query()],
) -> AnswerResponse:
    """Remove the segments that retention no longer keeps; with `dry_run` only list them."""
    answer = await operations.run_retention(partition, dry_run=parameters.dry_run)
    return AnswerResponse(answer)


@router.post(
    "/delete-records",
    operation_id="deleteRecords",
    tags=["maintenance"],
    responses={
        **answers(200, DeleteRecordsReport, "The offsets after the deletion"),
        **problems(404, 408, 413, 415, 416, 422, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(DeleteRecords),
        example={"before_offset": 1000},
    ),
)
async def delete_records(exchange: ExchangeDep, partition: PartitionDep) -> AnswerResponse:
    """Delete the records below an offset; -1 is the high watermark."""
    wanted = parse_model(await exchange.control_body(), DeleteRecords)
    answer = await operations.delete_records(partition, wanted.before_offset)
    return AnswerResponse(answer)


@router.post(
    "/truncate",
    operation_id="truncateLog",
    tags=["maintenance"],
    responses={
        **answers(200, TruncateReport, "The offsets and the new leader epoch"),
        **problems(404, 408, 412, 413, 415, 416, 422, 428, 501, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(TruncateLog),
        example={"to_offset": 1000},
    ),
)
async def truncate_log(
    exchange: ExchangeDep,
    partition: LocalPartitionDep,
    if_match: Annotated[
        str | None,
        Header(description="ETag: 412 unless the log end still has it. Required, else 428"),
    ] = None,
) -> AnswerResponse:
    """Delete all records from an offset on, permanently; a new leader epoch begins."""
    wanted = parse_model(await exchange.control_body(), TruncateLog)
    answer = await operations.truncate_log(partition, wanted.to_offset, if_match)
    return AnswerResponse(answer)


@router.post(
    "/compact",
    operation_id="compactLog",
    tags=["maintenance"],
    responses={
        **answers(200, CompactionReport, "The report of the compaction"),
        **problems(404, 422, 501, 507),
    },
)
async def compact_log(partition: LocalPartitionDep) -> AnswerResponse:
    """Compact a log as far as possible. The active segment is not compacted: roll it first."""
    return AnswerResponse(await operations.compact_log(partition))


@router.get(
    "/compaction",
    operation_id="getCompaction",
    tags=["maintenance"],
    responses={**answers(200, CompactionRange, "The range to rewrite"), **problems(404, 422, 501)},
)
async def get_compaction(partition: LocalPartitionDep) -> AnswerResponse:
    """Return what a compaction would rewrite now; only a compaction finds the records to drop."""
    return AnswerResponse(await operations.get_compaction(partition))
