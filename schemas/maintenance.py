"""Segments, and what maintenance did."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Model
from schemas.common import INT64_MAX, Count, Int64, Marks, PartitionNumber


class Segment(Model):
    """One segment of a log; `next_offset` is exclusive."""

    base_offset: Count
    next_offset: Count
    size_bytes: Count
    largest_timestamp: Int64
    """-1 if no record has a time."""
    is_active: bool


class SegmentList(Model):
    """The segments of a log in the order of their offsets."""

    topic: str
    partition: PartitionNumber
    segments: list[Segment]


class RollReport(Model):
    """Whether a new active segment was made; an empty active segment is kept."""

    rolled: bool
    old_base_offset: Count
    new_base_offset: Count


class FlushReport(Marks):
    """Everything below `recovery_point` is on disk, indexes and snapshots too."""

    recovery_point: Count


class RemovedSegment(Model):
    """A segment that was, or would be, removed, and why."""

    base_offset: Count
    next_offset: Count
    size_bytes: Count
    largest_timestamp: Int64
    reason: Literal["log_start", "size", "time"]


class RetentionParameters(Model):
    """How a retention pass is run."""

    dry_run: bool = False
    """Tell what would be removed and remove nothing."""


class RetentionReport(Marks):
    """What one retention pass removed, or would remove."""

    dry_run: bool
    removed: list[RemovedSegment]


class DeleteRecords(Model):
    """Up to where records are given up."""

    before_offset: Annotated[int, Field(ge=-1, le=INT64_MAX, json_schema_extra={"format": "int64"})]
    """Exclusive; -1 is the high watermark."""


class DeleteRecordsReport(Marks):
    """The marks after records were given up."""
