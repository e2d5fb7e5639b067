"""Parameters of a tail, and the data of its events."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, RootModel

from schemas.base import Parameters, ResponseModel
from schemas.common import (
    INT64,
    Bytes,
    Count,
    Encoding,
    Isolation,
    LeaderEpoch,
    LogIdGiven,
    PartitionNumber,
    TopicShown,
)
from schemas.fetch import FilterText, OffsetForm, OutOfRange, StartOffset, TopicStart
from schemas.problems import Problem


class TopicTailParameters(Parameters):
    """Where the tail of a topic begins, and how its records are shown."""

    offset: TopicStart = "earliest"
    """Where to start in every partition: `earliest`, `latest` (the high watermark; with
    `read_committed` the last stable offset) or `ts:<epoch ms>`. `Last-Event-ID` overrides it.
    Default `earliest`."""
    max_bytes: Bytes | None = None
    """Upper bound for stored bytes in one event; one whole batch is sent even if it is larger.
    Default: `tail_fetch_bytes` of `/v1/limits`."""
    isolation: Isolation = "read_uncommitted"
    """`read_committed` leaves out records of open and aborted transactions. Default
    `read_uncommitted`."""
    on_out_of_range: OutOfRange = "error"
    """Where to continue if `offset` is outside the log, at the start or later: end the tail
    (`error`), `earliest` or `latest`. Default `error`."""
    encoding: Encoding | None = None
    """Preferred encoding of keys, values and header values; a field that does not fit falls back
    from `json` to `utf8` to `base64`. Default: `utf8` for keys and headers, `json` for values."""
    offsets: OffsetForm = "number"
    """`string` shows offsets in events as JSON strings, for browsers. Default `number`."""
    filter: FilterText | None = None
    """Which records to send, such as `header.tenant = "7" and value/amount >= 100`. An event
    `offsets` moves past those that are passed over. Default: all."""
    last_event_id: str = Field("", alias="lastEventId")
    """Id of the last event, for clients that cannot send the header `Last-Event-ID`, which
    overrides it: resume from it. Default: none."""


class TailParameters(TopicTailParameters):
    """Where a tail begins, and how its records are shown."""

    offset: StartOffset = "earliest"
    """Where to start: an offset, `earliest`, `latest` (the high watermark; with `read_committed`
    the last stable offset) or `ts:<epoch ms>`. `Last-Event-ID` overrides it. Default `earliest`."""
    log_id: LogIdGiven | None = None
    """`log_id` of the log to follow; 409 if the log was replaced since. Default: not checked."""


class TailOffsets(ResponseModel):
    """Data of the event `offsets`; offsets are strings of digits with `offsets=string`."""

    topic: TopicShown
    partition: PartitionNumber
    next_offset: Count
    """Offset of the next record that the tail will send."""
    log_start_offset: Count
    """First offset that can be read."""
    high_watermark: Count
    """End of what is flushed to disk, exclusive."""
    last_stable_offset: Count
    """End of what `read_committed` readers see, exclusive."""
    log_end_offset: Count
    """Offset that the next record gets."""
    leader_epoch: LeaderEpoch


class TailEnd(ResponseModel):
    """Data of the event `end`, the last one; `next_offset` is a string with `offsets=string`."""

    topic: TopicShown
    partition: PartitionNumber
    next_offset: Count
    """Offset to resume from."""
    reason: str
    """`slow_consumer`, `time_limit`, or the code of a problem: `draining`, `topic_not_found`, …"""
    detail: str
    """Why the tail ended, for people."""
    retryable: bool
    """Whether the same tail may work again from `next_offset`."""
    problem: Problem | None
    """The error that ended the tail; null if there was none."""


def _json_of(name: str) -> dict[str, JsonValue]:
    """Return what says that a string is the JSON of a model."""
    schema: dict[str, JsonValue] = {"$ref": f"#/components/schemas/{name}"}
    return {"contentMediaType": "application/json", "contentSchema": schema}


EventId = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_-]+\.[0-9]{1,10}:[0-9]{1,19}$",
        description="Log id and next offset: what `Last-Event-ID` resumes from.",
    ),
]


class RecordsEvent(ResponseModel):
    """Records, as they are committed."""

    event: Literal["records"]
    """Always `records`."""
    id: EventId
    data: Annotated[str, Field(json_schema_extra=_json_of("RecordPage"))]
    """JSON of a `RecordPage`; of a `RecordPageWithStringOffsets` with `offsets=string`."""


class OffsetsEvent(ResponseModel):
    """The first event, and the heartbeat."""

    event: Literal["offsets"]
    """Always `offsets`."""
    id: EventId
    data: Annotated[str, Field(json_schema_extra=_json_of("TailOffsets"))]
    """JSON of a `TailOffsets`."""
    retry: Annotated[int, Field(ge=1), INT64] | None = None
    """Milliseconds to wait before reconnecting; in the first event only."""


class EndEvent(ResponseModel):
    """The last event."""

    event: Literal["end"]
    """Always `end`."""
    id: EventId
    data: Annotated[str, Field(json_schema_extra=_json_of("TailEnd"))]
    """JSON of a `TailEnd`."""


class TailEvent(
    RootModel[Annotated[RecordsEvent | OffsetsEvent | EndEvent, Field(discriminator="event")]]
):
    """One parsed event of the stream."""


class TopicTailOffsets(ResponseModel):
    """Data of the event `offsets` of a topic's tail."""

    topic: TopicShown
    partitions: list[TailOffsets]
    """Every partition; only one if its next offset moved past what is not shown."""


class TopicTailEnd(ResponseModel):
    """Data of the event `end` of a topic's tail, the last one; its id is where to resume."""

    topic: TopicShown
    reason: str
    """`slow_consumer`, `time_limit`, `partitions_added`, or the code of a problem: `draining`,
    `topic_not_found`, …"""
    detail: str
    """Why the tail ended, for people."""
    retryable: bool
    """Whether the same tail may work again from the id of this event."""
    problem: Problem | None
    """The error that ended the tail; null if there was none."""


TopicEventId = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_-]+;[0-9]+\.[0-9]+:[0-9]+(,[0-9]+\.[0-9]+:[0-9]+)*$",
        description="Next offset of every partition: what `Last-Event-ID` resumes from.",
    ),
]


class TopicRecordsEvent(ResponseModel):
    """Records of one partition, as they are committed."""

    event: Literal["records"]
    """Always `records`."""
    id: TopicEventId
    data: Annotated[str, Field(json_schema_extra=_json_of("RecordPage"))]
    """JSON of a `RecordPage`; of a `RecordPageWithStringOffsets` with `offsets=string`."""


class TopicOffsetsEvent(ResponseModel):
    """The first event, the heartbeat, and what moves past records that are not shown."""

    event: Literal["offsets"]
    """Always `offsets`."""
    id: TopicEventId
    data: Annotated[str, Field(json_schema_extra=_json_of("TopicTailOffsets"))]
    """JSON of a `TopicTailOffsets`."""
    retry: Annotated[int, Field(ge=1), INT64] | None = None
    """Milliseconds to wait before reconnecting; in the first event only."""


class TopicEndEvent(ResponseModel):
    """The last event."""

    event: Literal["end"]
    """Always `end`."""
    id: TopicEventId
    data: Annotated[str, Field(json_schema_extra=_json_of("TopicTailEnd"))]
    """JSON of a `TopicTailEnd`."""


class TopicTailEvent(
    RootModel[
        Annotated[
            TopicRecordsEvent | TopicOffsetsEvent | TopicEndEvent, Field(discriminator="event")
        ]
    ]
):
    """One parsed event of a topic's tail."""
