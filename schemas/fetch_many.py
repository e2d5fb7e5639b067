"""What one request reads of several partitions, and what comes of each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import FailFast, Field

from schemas.base import Model
from schemas.common import DECIMAL, INT64_MAX, Offset, PartitionNumber, TopicName
from schemas.fetch import OFFSET_PATTERN, RecordPage
from schemas.problems import Problem
from schemas.produce import Encoding

Bytes = Annotated[int, Field(ge=0, le=INT64_MAX, json_schema_extra={"format": "int64"}), DECIMAL]
Isolation = Literal["read_uncommitted", "read_committed"]


class PartitionFetch(Model):
    """Where to read in one partition, as `readRecords` takes it."""

    topic: TopicName
    partition: PartitionNumber
    offset: Offset | Annotated[str, Field(pattern=OFFSET_PATTERN)] = "earliest"
    """A number, `earliest`, `latest` (the high watermark) or `ts:<ms>`."""
    end_offset: Offset | None = None
    """Exclusive."""
    max_bytes: Bytes | None = None
    """Bytes of stored batches of this partition; without it all that the fetch has left."""
    isolation: Isolation = "read_uncommitted"
    on_out_of_range: Literal["error", "earliest", "latest"] = "error"
    log_id: Annotated[str, Field(max_length=64)] | None = None
    """The log this is about; another log under the same name is `log_replaced`."""


class FetchRequest(Model):
    """Several partitions, one wait and one budget of bytes."""

    partitions: Annotated[list[PartitionFetch], Field(min_length=1), FailFast()]
    max_bytes: Bytes | None = None
    """Bytes of stored batches of all partitions; one whole batch comes even if it is larger."""
    min_bytes: Bytes = 1
    """With `max_wait_ms`: wait until so many bytes can be read, of all partitions together."""
    max_wait_ms: Annotated[int, Field(ge=0, le=INT64_MAX), DECIMAL] = 0
    """The long poll: how long to wait for `min_bytes`."""
    max_records: Annotated[int, Field(ge=1, le=INT64_MAX), DECIMAL] | None = None
    """Of all partitions together, as JSON."""
    encoding: Encoding | None = None
    """Preferred for keys, values and header values; what cannot be shown so falls back."""
    offsets: Literal["number", "string"] = "number"
    """Offsets as strings, for browsers."""


class FetchedPartition(RecordPage):
    """Records of one partition and where to go on."""

    outcome: Literal["read"]
    log_id: str
    """For the next fetch: should the log be replaced, it says so."""


class FailedPartition(Model):
    """Why one partition could not be read; the others are not touched by it."""

    outcome: Literal["failed"]
    topic: str
    partition: PartitionNumber
    problem: Problem


class FetchPage(Model):
    """What came of each partition, in the order of the request."""

    partitions: list[Annotated[FetchedPartition | FailedPartition, Field(discriminator="outcome")]]
