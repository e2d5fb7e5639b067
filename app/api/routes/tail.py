"""Tail a partition, or a topic, with server-sent events."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    PartitionDep,
    TopicPath,
    problems,
    ref,
)
from app.codecs.calls import tail_call
from app.http.answers import Receive, Scope, Send
from app.operations.read.tail import TailSession, open_tail
from app.operations.read.tail_topic import open_topic_tail
from schemas.tail import TailEvent, TailParameters, TopicTailEvent, TopicTailParameters

router = APIRouter(prefix="/v1/topics/{topic}", tags=["consume"], dependencies=[IDENTIFIED])

EXAMPLE: Final = {
    "event": "records",
    "id": "q1Sh-9_zRtGJxzWc8T2LHA.0:6",
    "data": '{"topic":"flights","partition":0,"records":[{"offset":5,"timestamp":1788000000123,'
    '"timestamp_type":"create","key":"AA","key_encoding":"utf8","value":{"flight":1141},'
    '"value_encoding":"json","headers":[],"leader_epoch":0}],"next_offset":6,'
    '"log_start_offset":0,"high_watermark":6,"last_stable_offset":6,"log_end_offset":6,'
    '"leader_epoch":0}',
}


TOPIC_EXAMPLE: Final = {**EXAMPLE, "id": "q1Sh-9_zRtGJxzWc8T2LHA;0.0:6,1.0:0"}


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


@router.get(
    "/partitions/{partition}/tail",
    operation_id="tailRecords",
    response_class=Response,  # no JSON
    dependencies=[Depends(_tail_headers)],
    responses={
        200: {
            "description": "Events `records` (data: RecordPage), `offsets` (TailOffsets) while "
            "there are none, and `end` (TailEnd) as the last; the id of each is "
            "`<log_id>:<next offset>`",
            "content": {"text/event-stream": {"schema": ref(TailEvent), "example": EXAMPLE}},
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


@router.get(
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
