"""Segments of a log, and their files."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Request, Response

from app.api.routes.shared import IDENTIFIED, ExchangeDep, LocalPartitionDep, answers, problems
from app.http.answers import AnswerResponse, StreamedAnswer, StreamedResponse
from app.operations import maintenance
from app.operations.read import segments
from app.operations.read.slow_clients import cut_off_of
from engine.log.read.segment_files import FileKind
from schemas.common import Offset
from schemas.maintenance import SegmentList

router = APIRouter(
    prefix="/v1/topics/{topic}/partitions/{partition}", tags=["segments"], dependencies=[IDENTIFIED]
)

CONTENT = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.get(
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


@router.get(
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
