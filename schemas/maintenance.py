"""Segments, and what maintenance did."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from schemas.base import Model, Parameters
from schemas.common import DECIMAL, INT64_MAX, Count, Int64, Marks, Offset, PartitionNumber


class SegmentFiles(Model):
    """Where the files of a segment can be downloaded."""

    log: str
    index: str
    timeindex: str
    txnindex: str | None
    """Null where no transaction was aborted."""


class Segment(Model):
    """One segment of a log; `next_offset` is exclusive."""

    base_offset: Count
    next_offset: Count
    size_bytes: Count
    largest_timestamp: Int64
    """-1 if no record has a time."""
    is_active: bool
    files: SegmentFiles | None
    """Null for a segment below the log start that waits for its removal."""


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


class RetentionParameters(Parameters):
    """How a retention pass is run."""

    dry_run: Annotated[bool, BeforeValidator(lambda text: text == "" or text)] = False
    """Tell what would be removed and remove nothing; so does the bare name, `?dry_run`."""


class RetentionReport(Marks):
    """What one retention pass removed, or would remove."""

    dry_run: bool
    removed: list[RemovedSegment]


class TruncateLog(Model):
    """Where the log is to end."""

    to_offset: Offset
    """Exclusive: the records from here on are gone. At the most the log end, and amid no batch."""


class TruncateReport(Marks):
    """The marks after the log was cut, and the epoch that began there."""

    leader_epoch: Int64
    log_id: str
    """URLs that carry the old one are answered 409."""


class CompactionReport(Marks):
    """What a compaction did; sizes are those of the segments that were rewritten."""

    first_dirty_offset: Count
    end_offset: Count
    """Exclusive: below, every key has one record, or none."""
    segments_before: Count
    segments_after: Count
    bytes_before: Count
    bytes_after: Count
    records_read: Count
    records_kept: Count
    records_without_key: Count
    """Dropped because compaction has no use for them."""
    keys_count: Count
    """Different keys in the dirty part."""
    duration_ms: Count


class DeleteRecords(Model):
    """Up to where records are given up."""

    before_offset: Annotated[
        int, Field(ge=-1, le=INT64_MAX, json_schema_extra={"format": "int64"}), DECIMAL
    ]
    """Exclusive; -1 is the high watermark."""


class DeleteRecordsReport(Marks):
    """The marks after records were given up."""
