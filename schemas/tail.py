"""Parameters of a tail, and the data of its events."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from schemas.base import Model, Parameters
from schemas.common import DECIMAL, INT64_MAX, Int64, OffsetOrText, PartitionNumber
from schemas.fetch import OFFSET_PATTERN
from schemas.problems import Problem
from schemas.produce import Encoding


class TailParameters(Parameters):
    """Where a tail begins, and how its records are shown."""

    offset: Annotated[str, Field(pattern=OFFSET_PATTERN, examples=["latest"])] = "earliest"
    """A number, `earliest`, `latest` (the high watermark) or `ts:<ms>`; `Last-Event-ID` wins."""
    max_bytes: Annotated[int, Field(ge=0, le=INT64_MAX), DECIMAL] | None = None
    """Bytes of stored batches in one event; one whole batch is told even if it is larger."""
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    on_out_of_range: Literal["error", "earliest", "latest"] = "error"
    """Where to go on when the log start has passed the tail, instead of ending."""
    log_id: Annotated[str, Field(max_length=64)] | None = None
    """The log this tail is about; another log under the same name is 409."""
    encoding: Encoding | None = None
    """Preferred for keys, values and header values; what cannot be shown so falls back."""
    offsets: Literal["number", "string"] = "number"
    """Offsets as strings, for browsers."""


class TailOffsets(Model):
    """Data of the event `offsets`: where the log is, and where the tail stands in it."""

    topic: str
    partition: PartitionNumber
    next_offset: OffsetOrText
    log_start_offset: OffsetOrText
    high_watermark: OffsetOrText
    last_stable_offset: OffsetOrText
    log_end_offset: OffsetOrText
    leader_epoch: Int64


class TailEnd(Model):
    """Data of the event `end`, the last one: why, and where to resume."""

    topic: str
    partition: PartitionNumber
    next_offset: OffsetOrText
    reason: str
    """`slow_consumer`, `time_limit`, or a problem's code: `draining`, `topic_not_found`, …"""
    detail: str
    retryable: bool
    """Whether the same tail may work again, from `next_offset` on."""
    problem: Problem | None
    """The error that ended the tail, as a request would have met it."""


def _json_of(name: str) -> dict[str, JsonValue]:
    """Return what says that a string is the JSON of a model."""
    schema: dict[str, JsonValue] = {"$ref": f"#/components/schemas/{name}"}
    return {"contentMediaType": "application/json", "contentSchema": schema}


EventId = Annotated[str, Field(pattern="^[0-9]{1,19}$")]


class RecordsEvent(Model):
    """Records, as they come."""

    event: Literal["records"]
    id: EventId
    data: Annotated[str, Field(json_schema_extra=_json_of("RecordPage"))]


class OffsetsEvent(Model):
    """The first event, and the heartbeat."""

    event: Literal["offsets"]
    id: EventId
    data: Annotated[str, Field(json_schema_extra=_json_of("TailOffsets"))]
    retry: Annotated[int, Field(ge=1)] | None = None
    """In the first event: how long to wait before connecting again."""


class EndEvent(Model):
    """The last event."""

    event: Literal["end"]
    id: EventId
    data: Annotated[str, Field(json_schema_extra=_json_of("TailEnd"))]
