"""Records and batches: append, read, fetch from many logs, and follow a log or a topic."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from app.api.routes.shared import (
    APPEND_HEADERS,
    IDENTIFIED,
    KEY_HEADER,
    READ_HEADERS,
    ExchangeDep,
    PartitionDep,
    TopicPath,
    answers,
    body_of,
    problems,
    ref,
)
from app.codecs.calls import AppendCall, read_call, tail_call
from app.http.answers import AnswerResponse, Receive, Scope, Send, StreamedResponse
from app.operations.append import append, append_topic, stream_append
from app.operations.read import read, stream_read
from app.operations.read.fetch_many import fetch_many as run_fetch
from app.operations.read.fetch_many import read_topic as read_page
from app.operations.read.tail import TailSession, open_tail, open_topic_tail
from app.operations.request_content import parse_model
from schemas.fetch import (
    ReadParameters,
    ReadRecordsParameters,
    RecordPage,
    RecordPageWithStringOffsets,
)
from schemas.fetch_many import (
    FetchPage,
    FetchPageWithStringOffsets,
    FetchRequest,
    TopicPage,
    TopicPageWithStringOffsets,
    TopicReadParameters,
)
from schemas.produce import (
    AppendParameters,
    AppendReceipt,
    AppendRecordsParameters,
    RecordsIn,
    TopicAppendReceipt,
)
from schemas.tail import TailEvent, TailParameters, TopicTailEvent, TopicTailParameters

records_router = APIRouter(prefix="/v1/topics", dependencies=[IDENTIFIED])

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
            "406 if the service has no nanoarrow (`tidelog[arrow]`)",
        }
    },
}

APPENDED = {
    **answers(201, AppendReceipt, "Appended; with acks=all it is on disk"),
    **answers(200, AppendReceipt, "A duplicate: the offsets of the first append"),
    **answers(202, AppendReceipt, "Accepted with acks=0"),
    **problems(403, 404, 408, 409, 412, 413, 415, 422, 501, 504, 507),
}


@records_router.post(
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


@records_router.post(
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
    return AnswerResponse(await append.append_records(exchange, partition, call))


@records_router.get(
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


batches_router = APIRouter(
    prefix="/v1/topics/{topic}/partitions/{partition}", dependencies=[IDENTIFIED]
)

MEDIA_TYPE = "application/vnd.kafka.recordbatch.v2"
BYTES = {"type": "string", "format": "binary"}


@batches_router.post(
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
    return AnswerResponse(await append.append_batches(exchange, partition, call))


@batches_router.get(
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


fetch_router = APIRouter(prefix="/v1", tags=["consume"], dependencies=[IDENTIFIED])

FETCH_EXAMPLE: Final = {
    "partitions": [
        {"topic": "flights", "partition": 0, "offset": 41},
        {"topic": "flights", "partition": 1, "offset": "latest"},
    ],
    "max_bytes": 1048576,
    "max_wait_ms": 0,
}


@fetch_router.post(
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
        example=FETCH_EXAMPLE,
    ),
)
async def fetch_many(exchange: ExchangeDep) -> AnswerResponse:
    """Read from several partitions with one wait and one byte budget; each can fail alone."""
    wanted = parse_model(await exchange.control_body(), FetchRequest)
    return AnswerResponse(await run_fetch(exchange, wanted))


@fetch_router.get(
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


tail_router = APIRouter(prefix="/v1/topics/{topic}", tags=["consume"], dependencies=[IDENTIFIED])

TAIL_EXAMPLE: Final = {
    "event": "records",
    "id": "q1Sh-9_zRtGJxzWc8T2LHA.0:6",
    "data": '{"topic":"flights","partition":0,"records":[{"offset":5,"timestamp":1788000000123,'
    '"timestamp_type":"create","key":"AA","key_encoding":"utf8","value":{"flight":1141},'
    '"value_encoding":"json","headers":[],"leader_epoch":0}],"next_offset":6,'
    '"log_start_offset":0,"high_watermark":6,"last_stable_offset":6,"log_end_offset":6,'
    '"leader_epoch":0}',
}


TOPIC_EXAMPLE: Final = {**TAIL_EXAMPLE, "id": "q1Sh-9_zRtGJxzWc8T2LHA;0.0:6,1.0:0"}


class EventStream(Response):
    """A tail as what a route returns."""

    def __init__(self, session: TailSession) -> None:
        super().__init__()
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        await self._session.run(scope, send)


async def _tail_headers(
    last_event_id: Annotated[
        str | None,
        Header(
            description="Id of the last event: resume from it. Default: none, start at `offset`"
        ),
    ] = None,
) -> None:
    """Document the headers of a tail; the operation reads them itself."""


@tail_router.get(
    "/partitions/{partition}/tail",
    operation_id="tailRecords",
    response_class=Response,  # no JSON
    dependencies=[Depends(_tail_headers)],
    responses={
        200: {
            "description": "Events `records` (data: RecordPage), `offsets` (TailOffsets) while "
            "there are none, and `end` (TailEnd) as the last; the id of each is "
            "`<log_id>:<next offset>`",
            "content": {"text/event-stream": {"schema": ref(TailEvent), "example": TAIL_EXAMPLE}},
        },
        **problems(404, 406, 409, 410, 413, 416),
    },
)
async def tail_records(
    request: Request,
    exchange: ExchangeDep,
    partition: PartitionDep,
    parameters: Annotated[TailParameters, Query()],
) -> EventStream:
    """Follow a partition: its records from the offset on, then every commit as it happens."""
    call = tail_call(parameters, request.scope["query_string"])
    return EventStream(await open_tail(exchange, partition, call))


@tail_router.get(
    "/tail",
    operation_id="tailTopic",
    response_class=Response,  # no JSON
    dependencies=[Depends(_tail_headers)],
    responses={
        200: {
            "description": "Events `records` (data: RecordPage of one partition), `offsets` "
            "(TopicTailOffsets) while there are none, and `end` (TopicTailEnd) as the last; the "
            "id of each holds every partition's next offset",
            "content": {
                "text/event-stream": {"schema": ref(TopicTailEvent), "example": TOPIC_EXAMPLE}
            },
        },
        **problems(404, 406, 409, 410, 413, 416),
    },
)
async def tail_topic(
    request: Request,
    exchange: ExchangeDep,
    topic: TopicPath,
    parameters: Annotated[TopicTailParameters, Query()],
) -> EventStream:
    """Follow all partitions of a topic: their records, then every commit as it happens."""
    call = tail_call(parameters, request.scope["query_string"])
    return EventStream(await open_topic_tail(exchange, topic, call))
