"""One log: its offsets, splits, segment files and producers, and its maintenance."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    LocalPartitionDep,
    PartitionDep,
    TopicPath,
    answers,
    body_of,
    problems,
    ref,
)
from app.http.answers import AnswerResponse, StreamedAnswer, StreamedResponse
from app.http.slow_clients import cut_off_of
from app.operations import maintenance, producers
from app.operations.read import offsets, segments
from app.operations.request_content import parse_model
from engine.log.read.segment_files import FileKind
from schemas.common import Offset
from schemas.maintenance import (
    CompactionRange,
    CompactionReport,
    DeleteRecords,
    DeleteRecordsReport,
    FlushReport,
    RetentionParameters,
    RetentionReport,
    RollReport,
    SegmentList,
    TruncateLog,
    TruncateReport,
)
from schemas.offsets import (
    OffsetAtParameters,
    OffsetAtTime,
    OffsetParameters,
    Offsets,
    TimestampOrName,
    TopicOffsets,
)
from schemas.producers import (
    AppendOutcome,
    EndTransaction,
    OutcomeParameters,
    ProducerId,
    ProducerIdentity,
    ProducerList,
    ProducerParameters,
    Sequence,
    TransactionEnd,
)
from schemas.splits import SplitPlan, SplitRequest

offsets_router = APIRouter(prefix="/v1/topics/{topic}", tags=["offsets"], dependencies=[IDENTIFIED])


@offsets_router.get(
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
        return AnswerResponse(await offsets.get_offset_at(exchange, partition, timestamp))
    return AnswerResponse(await offsets.get_offsets(partition))


@offsets_router.get(
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
    answer = await offsets.get_offset_at(exchange, partition, parameters.timestamp)
    return AnswerResponse(answer)


@offsets_router.get(
    "/offsets",
    operation_id="getTopicOffsets",
    responses={**answers(200, TopicOffsets, "All partitions"), **problems(404, 413)},
)
async def get_topic_offsets(
    exchange: ExchangeDep, topic: TopicPath, parameters: Annotated[OffsetParameters, Query()]
) -> AnswerResponse:
    """Return the offsets of all partitions of a topic, or their offsets at a time."""
    answer = await offsets.get_topic_offsets(exchange, topic, parameters.timestamp)
    return AnswerResponse(answer)


@offsets_router.post(
    "/splits",
    operation_id="planSplits",
    responses={
        **answers(200, SplitPlan, "The plan; the service does not store it"),
        **problems(404, 408, 410, 413, 415, 416, 422),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(SplitRequest),
        example={"start": {"0": 0, "1": "earliest"}, "end": "latest", "min_splits": 8},
    ),
)
async def plan_splits(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Divide a range of a topic into splits of about equal size, for parallel readers."""
    wanted = parse_model(await exchange.control_body(), SplitRequest)
    return AnswerResponse(await offsets.plan_splits(exchange, topic, wanted))


segments_router = APIRouter(
    prefix="/v1/topics/{topic}/partitions/{partition}", tags=["segments"], dependencies=[IDENTIFIED]
)

CONTENT = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@segments_router.get(
    "/segments",
    operation_id="listSegments",
    responses={**answers(200, SegmentList, "The segments, oldest first"), **problems(404, 501)},
)
async def list_segments(partition: LocalPartitionDep) -> AnswerResponse:
    """List the segments of a log, with the paths of their files."""
    return AnswerResponse(await maintenance.list_segments(partition))


async def _download_headers(
    *,
    part: Annotated[
        str | None,
        Header(
            alias="range",
            description="Range of bytes, such as `bytes=0-99`. Default: all",
        ),
    ] = None,
    if_range: Annotated[
        str | None, Header(description="ETag: ignore `Range` unless the file has it. Default: none")
    ] = None,
    if_none_match: Annotated[
        str | None, Header(description="ETags: 304 if the file has one of them. Default: none")
    ] = None,
    if_match: Annotated[
        str | None, Header(description="ETags: 412 unless the file has one of them. Default: none")
    ] = None,
) -> None:
    """Document the headers of a download; the operation reads them itself."""


@segments_router.get(
    "/segments/{base_offset}/{kind}",
    operation_id="downloadSegment",
    response_class=Response,  # no JSON
    dependencies=[Depends(_download_headers)],
    responses={
        200: {"description": "The committed part of the file", "content": CONTENT},
        206: {"description": "The requested range of the file", "content": CONTENT},
        304: {"description": "The client has the file"},
        **problems(404, 409, 412, 416, 501),
    },
)
async def download_segment(
    request: Request,
    exchange: ExchangeDep,
    partition: LocalPartitionDep,
    base_offset: Annotated[Offset, Path(description="Base offset of the segment")],
    kind: Annotated[
        Literal["log", "index", "timeindex", "txnindex"], Path(description="File of the segment")
    ],
) -> Response:
    """Download a file of a segment as stored on disk, up to the high watermark."""
    answer = await segments.download_segment(
        exchange, partition, base_offset, FileKind(kind), cut_off=cut_off_of(request.scope)
    )
    if isinstance(answer, StreamedAnswer):
        return StreamedResponse(answer)
    return AnswerResponse(answer)


producers_router = APIRouter(prefix="/v1", tags=["producers"], dependencies=[IDENTIFIED])

PARTITION = "/topics/{topic}/partitions/{partition}"


@producers_router.post(
    "/producers",
    operation_id="allocateProducer",
    status_code=201,
    responses={**answers(201, ProducerIdentity, "A new producer id"), **problems(507)},
)
async def allocate_producer(exchange: ExchangeDep) -> AnswerResponse:
    """Allocate a producer id and epoch for idempotent appends."""
    return AnswerResponse(await producers.allocate_producer(exchange.service))


@producers_router.get(
    f"{PARTITION}/producers",
    operation_id="listProducers",
    responses={**answers(200, ProducerList, "One page of producers"), **problems(404)},
)
async def list_producers(
    partition: PartitionDep,
    parameters: Annotated[ProducerParameters, Query()],
) -> AnswerResponse:
    """List the producers of a log, by id."""
    answer = await producers.list_producers(
        partition,
        page_size=parameters.page_size,
        page_token=parameters.page_token,
    )
    return AnswerResponse(answer)


@producers_router.get(
    f"{PARTITION}/producers/{{producer_id}}/appends/{{sequence}}",
    operation_id="getAppendOutcome",
    responses={**answers(200, AppendOutcome, "The outcome of the append"), **problems(404)},
)
async def get_append_outcome(
    partition: PartitionDep,
    producer_id: Annotated[ProducerId, Path()],
    sequence: Annotated[Sequence, Path()],
    parameters: Annotated[OutcomeParameters, Query()],
) -> AnswerResponse:
    """Return whether an append is in the log, by any of its sequences, if its response was lost."""
    answer = await producers.get_append_outcome(
        partition, producer_id, sequence, parameters.producer_epoch
    )
    return AnswerResponse(answer)


@producers_router.post(
    f"{PARTITION}/transactions",
    operation_id="endTransaction",
    responses={
        **answers(200, TransactionEnd, "The marker is on disk"),
        **problems(403, 404, 408, 409, 413, 415, 422, 501, 504, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(EndTransaction),
        example={"producer_id": 4000, "producer_epoch": 0, "action": "commit"},
    ),
)
async def end_transaction(exchange: ExchangeDep, partition: LocalPartitionDep) -> AnswerResponse:
    """Commit or abort a producer's open transaction on this partition."""
    wanted = parse_model(await exchange.control_body(), EndTransaction)
    return AnswerResponse(await producers.end_transaction(partition, wanted))


maintenance_router = APIRouter(
    prefix="/v1/topics/{topic}/partitions/{partition}", dependencies=[IDENTIFIED]
)


@maintenance_router.post(
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
    return AnswerResponse(await maintenance.roll_segment(partition))


@maintenance_router.post(
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
    return AnswerResponse(await maintenance.flush_log(partition))


@maintenance_router.post(
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
    answer = await maintenance.run_retention(partition, dry_run=parameters.dry_run)
    return AnswerResponse(answer)


@maintenance_router.post(
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
    answer = await maintenance.delete_records(partition, wanted.before_offset)
    return AnswerResponse(answer)


@maintenance_router.post(
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
    answer = await maintenance.truncate_log(partition, wanted.to_offset, if_match)
    return AnswerResponse(answer)


@maintenance_router.post(
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
    return AnswerResponse(await maintenance.compact_log(partition))


@maintenance_router.get(
    "/compaction",
    operation_id="getCompaction",
    tags=["maintenance"],
    responses={**answers(200, CompactionRange, "The range to rewrite"), **problems(404, 422, 501)},
)
async def get_compaction(partition: LocalPartitionDep) -> AnswerResponse:
    """Return what a compaction would rewrite now; only a compaction finds the records to drop."""
    return AnswerResponse(await maintenance.get_compaction(partition))
