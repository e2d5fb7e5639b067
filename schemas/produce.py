"""Records on their way in, and the receipt."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from schemas.base import Model, Parameters, ResponseModel
from schemas.common import (
    Absent,
    AppendedOffset,
    Count,
    Encoding,
    Flag,
    Int32,
    Int64,
    Offset,
    PartitionNumber,
    TimestampMs,
    TopicShown,
)
from schemas.ingest import Split

Acks = Literal["0", "1", "all"]


class AppendParameters(Parameters):
    """When an append is answered."""

    acks: Acks = "all"
    """When to respond: `0` at once (202), `1` when the records are in the log and the page cache,
    `all` when they are synced to disk. Default `all`."""


class AppendRecordsParameters(AppendParameters):
    """What an append of records to one partition takes besides."""

    stream: Flag = False
    """`true` accepts an NDJSON body of any length and commits it in parts while it arrives; each
    part is one batch. Default `false`: the whole body is one batch, or nothing is written."""


class HeaderIn(Model):
    """One header of a record."""

    key: str
    """Header name."""
    value: JsonValue
    """Header value; text unless `encoding` says otherwise."""
    encoding: Encoding | None = None
    """Encoding of `value`. Default: `utf8` for a string, `json` for any other value."""


class RecordIn(Model):
    """One record. `value` is required, so that a missing value is never read as a tombstone."""

    key: JsonValue = None
    """Key: any JSON value. Default: null, no key."""
    value: JsonValue
    """Value: any JSON value; null is a tombstone."""
    headers: list[HeaderIn] | None = None
    """Record headers, in order. Default: none."""
    timestamp: TimestampMs | None = None
    """Epoch milliseconds; an RFC 3339 string is accepted too. Default: the time of the append."""
    key_encoding: Encoding | None = None
    """Encoding of `key`. Default: `utf8` for a string, `json` for any other value."""
    value_encoding: Encoding | None = None
    """Encoding of `value`. Default: `json`, the bytes of the JSON value exactly as sent."""


class RecordsIn(Model):
    """The body of an append: all records become one batch, or nothing is written."""

    records: Annotated[
        list[RecordIn],
        Field(
            min_length=1,
            examples=[[{"key": "AA", "value": {"flight": 1141, "arr_delay": 33}}]],
        ),
    ]
    """Records to append, at most `max_records_per_request` of `/v1/limits`."""


class AppendReceipt(ResponseModel):
    """The result of an append to one partition."""

    topic: TopicShown
    partition: PartitionNumber
    base_offset: AppendedOffset
    """Offset of the first record; -1 if a Kafka cluster does not tell it, with `acks=0`."""
    last_offset: AppendedOffset
    """Offset of the last record, inclusive; -1 as above."""
    count: Count
    """Number of records."""
    timestamp: Int64
    """Time of the append, or the largest timestamp among the records; epoch milliseconds."""
    duplicate: bool
    """`true`: this sequence had been written before; the offsets are those of the first time."""
    acks: Acks
    """`acks` of the request."""
    log_start_offset: Count
    """First offset that can be read."""
    high_watermark: Count
    """End of what is flushed to disk, exclusive."""
    log_end_offset: Count
    """Offset that the next record gets."""
    lines: Count | Absent = None
    """With `stream=true` only: lines of the body, blank ones included. Records of other producers
    may lie between `base_offset` and `last_offset`."""


class RecordOutcome(ResponseModel):
    """Partition and offset of a written record; a `status` and error if it was not written."""

    partition: PartitionNumber
    offset: Offset | Absent = None
    """Offset of the record; absent if it was not written."""
    status: Int32 | Absent = None
    """HTTP status of the error; absent if the record was written."""
    code: str | Absent = None
    """Code of the error, as `Problem.code`."""
    detail: str | Absent = None
    """What went wrong, for people."""
    retryable: bool | Absent = None
    """Whether the same record may succeed later."""
    side_effects: Literal["none", "unknown"] | Absent = None
    """`unknown`: the record may have been written."""


class TopicAppendReceipt(ResponseModel):
    """The result of an append to the partitions of a topic."""

    topic: TopicShown
    count: Count
    """Number of records that were written."""
    acks: Acks
    """`acks` of the request."""
    partitions: list[AppendReceipt]
    """One receipt for each partition that was written."""
    records: list[RecordOutcome]
    """One entry for each record, in the order of the request."""


class IngestParameters(Parameters):
    """How an ingested body is cut; senders may add parameters of their own."""

    model_config = ConfigDict(extra="ignore")

    split: Split | None = None
    """`array`: one record per element of a JSON array; `lines`: one per line; `values`: one per
    JSON value, however they are separated; `none`: NDJSON by lines, any other body as one record.
    Default: as in the topic's ingest profile."""


OtlpSignal = Literal["logs", "traces", "metrics"]


class IngestedPart(ResponseModel):
    """The records of a body in one partition."""

    partition: PartitionNumber
    offset: Offset
    """Offset of the first of them; the others follow it."""
    count: Count
    """Number of records."""


class IngestReceipt(ResponseModel):
    """Partitions and offsets of the records of a body, which are on disk."""

    topic: TopicShown
    partition: PartitionNumber
    offset: Offset
    """Offset of the first record."""
    count: Count
    """Number of records."""
    partitions: list[IngestedPart] | Absent = None
    """Only if records have keys of several partitions: the records of each, the first above."""


class IngestEndpoint(ResponseModel):
    """The response to a sender's health check."""

    topic: TopicShown


HecForm = Literal["event", "raw"]


class HecResult(ResponseModel):
    """How Splunk's HTTP Event Collector tells success, and what went wrong."""

    text: str
    """For people."""
    code: Int32
    """Splunk's number: 0 for success."""


class OtlpResponse(ResponseModel):
    """OTLP's response message of each signal: nothing, or what was refused of the request."""


class OtlpStatus(ResponseModel):
    """A `google.rpc.Status`: how OTLP tells errors."""

    code: Int32
    """A `google.rpc.Code`, such as 3 for INVALID_ARGUMENT."""
    message: str
    """What went wrong, for people."""
