"""Records on their way in, and the receipt."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from schemas.base import Model, Parameters
from schemas.common import Count, Int64, Offset, PartitionNumber, TimestampMs

Encoding = Literal["json", "utf8", "base64"]
Acks = Literal["0", "1", "all"]


class AppendParameters(Parameters):
    """When an append is answered."""

    acks: Acks = "all"
    """0 and 1: when it is in the log and the page cache (202, 201); all: when it is on disk."""


class AppendRecordsParameters(AppendParameters):
    """What an append of records to one partition takes besides."""

    stream: bool = False
    """NDJSON of any length, committed in parts while it arrives; each part is one batch."""


class HeaderIn(Model):
    """One header of a record; its value is text unless `encoding` says otherwise."""

    key: str
    value: JsonValue
    encoding: Encoding | None = None


class RecordIn(Model):
    """One record. `value` must be there, because null is a tombstone and never an accident."""

    key: JsonValue = None
    value: JsonValue
    headers: list[HeaderIn] | None = None
    timestamp: TimestampMs | None = None
    """Milliseconds since the epoch; the time of the append if absent."""
    key_encoding: Encoding | None = None
    """Default: a string's text, any other value as its JSON."""
    value_encoding: Encoding | None = None
    """Default: the bytes of the JSON value exactly as sent."""


class RecordsIn(Model):
    """The body of an append: all of it is in one batch, or nothing is written."""

    records: Annotated[
        list[RecordIn],
        Field(
            min_length=1,
            examples=[[{"key": "AA", "value": {"flight": 1141, "arr_delay": 33}}]],
        ),
    ]


class AppendReceipt(Model):
    """What an append to one partition did; `last_offset` is inclusive."""

    topic: str
    partition: PartitionNumber
    base_offset: Offset
    last_offset: Offset
    count: int
    timestamp: Int64
    """The append time, or the largest time among the records."""
    duplicate: bool
    """The same sequence had been written before; the offsets are those of then."""
    acks: Acks
    log_start_offset: Count
    high_watermark: Count
    log_end_offset: Count
    lines: int | None = None
    """With `stream=true`: all lines of the body, blank ones too. Records of others may lie between
    its offsets then."""


class RecordOutcome(Model):
    """Where one record went, or why it did not."""

    partition: PartitionNumber
    offset: Offset | None = None
    status: int | None = None
    code: str | None = None
    detail: str | None = None
    retryable: bool | None = None
    side_effects: Literal["none", "unknown"] | None = None


class TopicAppendReceipt(Model):
    """What an append over a topic's partitions did, records in input order."""

    topic: str
    count: int
    acks: Acks
    partitions: list[AppendReceipt]
    records: list[RecordOutcome]
