"""What is to be cut into splits, and the plan."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from schemas.base import Model
from schemas.common import DECIMAL, INT64_MAX, Count, Offset, PartitionNumber
from schemas.fetch import OFFSET_PATTERN

Positive = Annotated[int, Field(ge=1, le=INT64_MAX, json_schema_extra={"format": "int64"}), DECIMAL]
Place: TypeAlias = Offset | Annotated[str, Field(pattern=OFFSET_PATTERN)]
PartitionKey = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
Cut: TypeAlias = Place | dict[PartitionKey, Place]


class SplitRequest(Model):
    """Two cuts through a topic, and how what lies between them is to be shared out."""

    start: Cut = "earliest"
    """A number, `earliest`, `latest` or `ts:<ms>`; or one of these for each partition."""
    end: Cut = "latest"
    """Exclusive; as `start`. `latest` is the end of what such a reader may see."""
    partitions: Annotated[list[PartitionNumber], Field(min_length=1)] | None = None
    """All partitions if it is left out."""
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    target_bytes: Positive | None = None
    """So many bytes a split, or less; `default_split_bytes` if `min_splits` is missing too."""
    min_splits: Positive | None = None
    """So many splits at least, as far as there are batches for them."""
    max_splits: Positive | None = None
    """So many at the most, whatever `target_bytes` says; a partition takes one at least."""
    max_records: Positive | None = None
    """No split spans more offsets, unless a single batch does; cuts what is planned further."""


class PlannedRange(Model):
    """The range of one partition that a plan covers."""

    partition: PartitionNumber
    start_offset: Count
    end_offset: Count
    """Exclusive."""
    size_bytes: Count
    log_id: str


class Split(Model):
    """A part of a partition's range; no batch is in two of them."""

    partition: PartitionNumber
    start_offset: Count
    end_offset: Count
    """Exclusive."""
    size_bytes: Count
    """Of the stored batches that reading it returns, what is aborted included."""
    log_id: str
    """For the URLs that read it: should the log be replaced, they say so."""


class SplitPlan(Model):
    """A partition's splits are its range: in order, without gap or overlap."""

    topic: str
    partitions: list[PlannedRange]
    splits: list[Split]
