"""What one request reads of several partitions, and what comes of each."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import FailFast, Field, RootModel

from schemas.base import Model, Parameters, ResponseModel
from schemas.common import (
    Bytes,
    Encoding,
    Int64,
    Isolation,
    LogId,
    LogIdGiven,
    Milliseconds,
    OffsetOrEnd,
    OffsetOrName,
    OffsetText,
    PartitionNumber,
    Positive,
    TopicName,
    TopicShown,
)
from schemas.fetch import (
    FilterText,
    OffsetForm,
    OutOfRange,
    PageOf,
    RecordOut,
    RecordOutWithStringOffset,
    TopicStart,
)
from schemas.problems import Problem


class PartitionFetch(Model):
    """Where to read in one partition, as `readRecords` takes it."""

    topic: TopicName
    partition: PartitionNumber
    offset: OffsetOrName = "earliest"
    """Where to start. Default `earliest`."""
    end_offset: OffsetOrEnd | None = None
    """Where to stop, exclusive. Default: none, read to the end of what is visible."""
    max_bytes: Bytes | None = None
    """Upper bound for stored bytes of this partition. Default: what the fetch has left."""
    isolation: Isolation = "read_uncommitted"
    """`read_committed` leaves out records of open and aborted transactions. Default
    `read_uncommitted`."""
    on_out_of_range: OutOfRange = "error"
    """Where to start if `offset` is outside the log: fail with 410 or 416 (`error`), `earliest` or
    `latest`. Default `error`."""
    log_id: LogIdGiven | None = None
    """`log_id` of the log to read; `log_replaced` if it was replaced since. Default: not
    checked."""


class FetchRequest(Model):
    """Several partitions, one wait and one budget of bytes."""

    partitions: Annotated[list[PartitionFetch], Field(min_length=1), FailFast()]
    """Partitions to read, at most `max_fetch_partitions` of `/v1/limits`."""
    max_bytes: Bytes | None = None
    """Upper bound for stored bytes of all partitions together; one whole batch is returned even if
    it is larger. Default: `default_fetch_bytes` of `/v1/limits` (1 MiB)."""
    min_bytes: Bytes = 1
    """Long poll: answer as soon as this many bytes can be read, of all partitions together. Default
    1."""
    max_wait_ms: Milliseconds = 0
    """Long poll: milliseconds to wait for `min_bytes`, at most 60,000. Default 0, no wait."""
    max_records: Positive | None = None
    """Upper bound for records of all partitions together, as JSON. Default:
    `default_fetch_records` of `/v1/limits`."""
    encoding: Encoding | None = None
    """Preferred encoding of keys, values and header values; a field that does not fit falls back
    from `json` to `utf8` to `base64`. Default: `utf8` for keys and headers, `json` for values."""
    offsets: OffsetForm = "number"
    """`string` returns offsets as JSON strings, for browsers, as the media type
    `application/json;offsets=string`. Default `number`."""
    filter: FilterText | None = None
    """Which records to return, such as `header.tenant = "7" and value/amount >= 100`; what is
    passed over counts for `max_bytes`. Default: all."""


class FetchedPartition(PageOf[RecordOut, Int64]):
    """Records of one partition and where to read on."""

    outcome: Literal["read"]
    """Always `read`: tells this entry from a failed one."""
    log_id: LogId


class FetchedPartitionWithStringOffsets(PageOf[RecordOutWithStringOffset, OffsetText]):
    """Records of one partition and where to read on, as `offsets=string` shows them."""

    outcome: Literal["read"]
    """Always `read`: tells this entry from a failed one."""
    log_id: LogId


class FailedPartition(ResponseModel):
    """Why one partition could not be read; the other partitions are not affected."""

    outcome: Literal["failed"]
    """Always `failed`: tells this entry from one that was read."""
    topic: TopicShown
    partition: PartitionNumber
    problem: Problem
    """The error of a request for this partition alone."""


class FetchEntry(
    RootModel[Annotated[FetchedPartition | FailedPartition, Field(discriminator="outcome")]]
):
    """The result for one partition."""


class FetchEntryWithStringOffsets(
    RootModel[
        Annotated[
            FetchedPartitionWithStringOffsets | FailedPartition, Field(discriminator="outcome")
        ]
    ]
):
    """The result for one partition, as `offsets=string` shows it."""


class FetchPage(ResponseModel):
    """The result for each partition."""

    partitions: list[FetchEntry]
    """One entry for each partition, in the order of the request."""


class FetchPageWithStringOffsets(ResponseModel):
    """The result for each partition, as `offsets=string` shows it."""

    partitions: list[FetchEntryWithStringOffsets]
    """One entry for each partition, in the order of the request."""


class TopicReadParameters(Parameters):
    """Where to read in all partitions of a topic, and how records are shown."""

    page_token: Annotated[str, Field(max_length=60_000)] | None = None
    """`next_page_token` of the previous page; it replaces `offset`. Default: none, the first
    page."""
    offset: TopicStart = "earliest"
    """Where the first page starts in every partition: `earliest`, `latest` (the high watermark;
    with `read_committed` the last stable offset) or `ts:<epoch ms>`. Default `earliest`."""
    max_bytes: Bytes | None = None
    """Upper bound for stored bytes of all partitions together; one whole batch is returned even if
    it is larger. Default: `default_fetch_bytes` of `/v1/limits` (1 MiB)."""
    max_records: Positive | None = None
    """Upper bound for records of all partitions together. Default: `default_fetch_records` of
    `/v1/limits`."""
    isolation: Isolation = "read_uncommitted"
    """`read_committed` leaves out records of open and aborted transactions. Default
    `read_uncommitted`."""
    on_out_of_range: OutOfRange = "error"
    """Where to continue if retention has removed an offset in the token: fail with 410 or 416
    (`error`), `earliest` or `latest`. Default `error`."""
    encoding: Encoding | None = None
    """Preferred encoding of keys, values and header values; a field that does not fit falls back
    from `json` to `utf8` to `base64`. Default: `utf8` for keys and headers, `json` for values."""
    offsets: OffsetForm = "number"
    """`string` returns offsets as JSON strings, for browsers, as the media type
    `application/json;offsets=string`. Default `number`."""
    filter: FilterText | None = None
    """Which records to return, such as `header.tenant = "7" and value/amount >= 100`; what is
    passed over counts for `max_bytes`. Default: all."""


P = TypeVar("P")


class TopicPageOf(ResponseModel, Generic[P]):
    """Records of all partitions of a topic."""

    topic: TopicShown
    partitions: list[P]
    """Partitions with records on this page, in the order of their numbers."""
    next_page_token: str
    """Holds every partition's next offset: send it as `page_token` to read on, now or later."""
    is_at_end: bool
    """Whether this page reached the end of what could be read in every partition."""


class TopicPage(TopicPageOf[FetchedPartition]):
    """Records of all partitions of a topic, one page of them."""


class TopicPageWithStringOffsets(TopicPageOf[FetchedPartitionWithStringOffsets]):
    """Records of all partitions of a topic, one page of them, as `offsets=string` shows them."""
