"""What is to be cut into splits, and the plan."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field, WithJsonSchema

from schemas.base import Model, ResponseModel
from schemas.common import (
    OFFSET_PATTERN,
    Count,
    Isolation,
    LogId,
    Offset,
    PartitionNumber,
    Positive,
    TopicShown,
)

Place: TypeAlias = Offset | Annotated[str, Field(pattern=OFFSET_PATTERN)]
PartitionKey = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
Cut: TypeAlias = Annotated[
    Place | dict[PartitionKey, Place],
    # In words: a union with a map compiles neither in Java (openapi-generator) nor, once the map
    # has a declared member, in TypeScript (orval).
    WithJsonSchema({"examples": [0, "earliest", "ts:1788000000123", {"0": 0, "1": "latest"}]}),
]


class SplitRequest(Model):
    """A range of offsets in each partition of a topic, and how to divide it."""

    start: Cut = "earliest"
    """Where the splits begin: one offset for all partitions (a number, `earliest`, `latest` or
    `ts:<epoch ms>`), or an object with one for each partition number. Default `earliest`."""
    end: Cut = "latest"
    """Where the splits end, exclusive: as `start`; `latest` is the end of what such a reader sees.
    Default `latest`."""
    partitions: Annotated[list[PartitionNumber], Field(min_length=1)] | None = None
    """Partitions to plan. Default: all partitions of the topic."""
    isolation: Isolation = "read_uncommitted"
    """Isolation of the readers that the plan is for. Default `read_uncommitted`."""
    target_bytes: Positive | None = None
    """Upper bound for stored bytes of a split. Default: 64 MiB, or none if `min_splits`
    is given."""
    min_splits: Positive | None = None
    """Lower bound for the number of splits, as far as there are batches for them. Default: none."""
    max_splits: Positive | None = None
    """Upper bound for the number of splits, whatever `target_bytes` says; each partition has at
    least one. Default: none, but 413 for more than `max_splits` of `/v1/limits`."""
    max_records: Positive | None = None
    """Upper bound for the offsets that a split spans, unless a single batch spans more. Default:
    none."""


class PlannedRange(ResponseModel):
    """The range of one partition that a plan covers."""

    partition: PartitionNumber
    start_offset: Count
    """First offset of the range."""
    end_offset: Count
    """End of the range, exclusive."""
    size_bytes: Count
    """Stored bytes of the range."""
    log_id: LogId


class Split(ResponseModel):
    """A part of a partition's range; no batch is in two of them."""

    partition: PartitionNumber
    start_offset: Count
    """First offset of the split."""
    end_offset: Count
    """End of the split, exclusive."""
    size_bytes: Count
    """Bytes of the stored batches that reading the split touches, aborted ones included."""
    log_id: LogId


class SplitPlan(ResponseModel):
    """The splits of a partition are its range: in order, without gap or overlap."""

    topic: TopicShown
    partitions: list[PlannedRange]
    """Range of each partition."""
    splits: list[Split]
    """Splits in the order of partition and offset."""
