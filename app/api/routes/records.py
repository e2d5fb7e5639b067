"""Append and read records as JSON and NDJSON."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.routes.shared import (
    APPEND_HEADERS,
    IDENTIFIED,
    KEY_HEADER,
    READ_HEADERS,
    ExchangeDep,
    PartitionDep,
    TopicPath,
    answers,
    problems,
    ref,
)
from app.codecs.calls import AppendCall, read_call
from app.http.answers import AnswerResponse, StreamedResponse
from app.operations.append import append_partition, append_topic, stream_append
from app.operations.read import read, stream_read
from schemas.fetch import ReadRecordsParameters, RecordPage, RecordPageWithStringOffsets
from schemas.produce import (
    AppendParameters,
    AppendReceipt,
    AppendRecordsParameters,
    RecordsIn,
    TopicAppendReceipt,
)

router = APIRouter(prefix="/v1/topics", dependencies=[IDENTIFIED])

EXAMPLE = {"records": [{"key": "AA", "value": {"flight": 1141, "arr_delay": 33}}]}
RECORDS_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": ref(RecordsIn),
                "example": EXAMPLE,
            },
            "application/x-ndjson": {
                "schema": {"type": "string", "description": "One RecordIn per line"},
                "example": '{"key":"AA","value":1}\n{"key":"UA","value":2}\n',
            },
        },
    }
}

_LINE = (
    '{"offset":0,"timestamp":1788000000123,"timestamp_type":"create","key":"AA",'
    '"key_encoding":"utf8","value":1,"value_encoding":"json","headers":[],"leader_epoch":0}\n'
)

_PAGE = {
    "application/json": {"schema": ref(RecordPage)},
    "application/json;offsets=string": {"schema": ref(RecordPageWithStringOffsets)},
    "application/x-ndjson": {
        "schema": {"type": "string", "description": "One RecordOut per line"},
        "example": _LINE,
    },
    "application/vnd.apache.arrow.stream": {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "Columns offset, timestamp, key, value and headers; "
            "406 if the service has no PyArrow",
        }
    },
}

APPENDED = {
    **answers(201, AppendReceipt, "Appended; with acks=all it is on disk"),
    **answers(200, AppendReceipt, "A duplicate: the offsets of the first append"),
    **answers(202, AppendReceipt, "Accepted with acks=0"),
    **problems(403, 404, 408, 409, 412, 413, 415, 422, 501, 504, 507),
}


@router.post(
    "/{topic}/records",
    operation_id="appendTopicRecords",
    tags=["produce"],
    dependencies=[KEY_HEADER],
    status_code=201,
    responses={
        **answers(201, TopicAppendReceipt, "Appended"),
        **answers(200, TopicAppendReceipt, "A duplicate: the offsets of the first append"),
        **answers(202, TopicAppendReceipt, "Accepted with acks=0"),
        **answers(207, TopicAppendReceipt, "Some partitions failed; one entry for each record"),
        **problems(404, 408, 409, 413, 415, 422, 504, 507),
    },
    openapi_extra=RECORDS_BODY,
)
async def append_topic_records(
    exchange: ExchangeDep, topic: TopicPath, parameters: Annotated[AppendParameters, Query()]
) -> AnswerResponse:
    """Append records; Kafka's partitioner chooses the partition of each by its key."""
    call = AppendCall(parameters.acks)
    return AnswerResponse(await append_topic.append_topic_records(exchange, topic, call))


@router.post(
    "/{topic}/partitions/{partition}/records",
    operation_id="appendRecords",
    tags=["produce"],
    dependencies=[KEY_HEADER, APPEND_HEADERS],
    responses=APPENDED,
    openapi_extra=RECORDS_BODY,
)
async def append_records(
    exchange: ExchangeDep,
    partition: PartitionDep,
    parameters: Annotated[AppendRecordsParameters, Query()],
) -> AnswerResponse:
    """Append records to one partition as one batch: all of them, or none.

    With `stream=true` an NDJSON body may have any length: it is committed in parts while it
    arrives, and the response, or the problem document, says up to which line.
    """
    call = AppendCall(parameters.acks)
    if parameters.stream:
        return AnswerResponse(await stream_append.append_stream(exchange, partition, call))
    return AnswerResponse(await append_partition.append_records(exchange, partition, call))


@router.get(
    "/{topic}/partitions/{partition}/records",
    operation_id="readRecords",
    tags=["consume"],
    response_model=None,
    dependencies=[READ_HEADERS],
    responses={
        200: {
            "description": "Records from the offset on",
            "content": _PAGE,
        },
        206: {
            "description": "The requested range of an immutable page; the schema is that of the "
            "whole page",
            "content": _PAGE,
        },
        304: {"description": "The client has the immutable page"},
        **problems(404, 406, 409, 410, 413, 416, 501),
    },
)
async def read_records(
    request: Request,
    exchange: ExchangeDep,
    partition: PartitionDep,
    parameters: Annotated[ReadRecordsParameters, Query()],
) -> Response:
    """Read records as JSON, NDJSON or Arrow; `max_wait_ms` waits for new ones (long poll).

    With `stream=true` the response is not one page but everything up to the end, in chunks.
    """
    call = read_call(parameters, request.scope["query_string"])
    if parameters.stream:
        streamed = await stream_read.stream_records(exchange, partition, call, request.scope)
        return StreamedResponse(streamed)
    return AnswerResponse(await read.read_records(exchange, partition, call))
