"""Segments, and what maintenance did."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from schemas.base import Model, Parameters, ResponseModel
from schemas.common import (
    DECIMAL,
    INT64,
    INT64_MAX,
    LATEST,
    Absent,
    Count,
    DamagedPlace,
    Flag,
    Int64,
    LeaderEpoch,
    LogId,
    Marks,
    OffsetOrEnd,
    PartitionNumber,
    TopicShown,
)


class SegmentFiles(ResponseModel):
    """Paths at which the files of a segment can be downloaded."""

    log: str
    """Path of the `.log` file."""
    index: str
    """Path of the offset index."""
    timeindex: str
    """Path of the time index."""
    txnindex: str | None
    """Path of the transaction index; null if the segment has no aborted transaction."""


class Segment(ResponseModel):
    """One segment of a log."""

    base_offset: Count
    """First offset of the segment."""
    next_offset: Count
    """End of the segment, exclusive."""
    size_bytes: Count
    """Size of the `.log` file in bytes."""
    largest_timestamp: Int64
    """Largest timestamp in the segment, epoch milliseconds; -1 if no record has one."""
    is_active: bool
    """Whether records are appended to this segment."""
    files: SegmentFiles | None
    """Where to download the files; null for a segment below the log start that will be removed."""


class SegmentList(Marks):
    """The segments of a log."""

    topic: TopicShown
    partition: PartitionNumber
    archived_offset: Count | Absent = None
    """End of what the archive has, exclusive; absent without an archive, or before its first
    look."""
    local_log_start_offset: Count | Absent = None
    """First offset on the disk: only the archive has what is between the log start and this one.
    Absent without an archive."""
    segments: list[Segment]
    """Segments in the order of their offsets; the last one is active."""
    damage: list[DamagedPlace]
    """Places in the log that are known to be damaged, by file and position."""


class RollReport(Marks):
    """Whether a new active segment was opened; an empty active segment is kept."""

    rolled: bool
    """`false`: the active segment is empty and was kept."""
    old_base_offset: Count
    """Base offset of the active segment before."""
    new_base_offset: Count
    """Base offset of the active segment now."""


class FlushReport(Marks):
    """The offsets after the flush."""

    recovery_point: Count
    """Everything below this offset is on disk, indexes and snapshots too."""


class RemovedSegment(ResponseModel):
    """A segment that was, or would be, removed, and why."""

    base_offset: Count
    """First offset of the segment."""
    next_offset: Count
    """End of the segment, exclusive."""
    size_bytes: Count
    """Size of the `.log` file in bytes."""
    largest_timestamp: Int64
    """Largest timestamp in the segment, epoch milliseconds; -1 if no record has one."""
    reason: Literal["log_start", "size", "time"]
    """Below the log start, beyond `retention.bytes`, or older than `retention.ms`."""


class RetentionParameters(Parameters):
    """How a retention pass is run."""

    dry_run: Annotated[Flag, BeforeValidator(lambda text: text == "" or text)] = False
    """`true`, or the bare name `?dry_run`: report what would be removed and remove nothing. Default
    `false`."""


class HeldSegment(ResponseModel):
    """The oldest segment that stays, because a record in it has a time in the future."""

    base_offset: Count
    """Base offset of the segment."""
    largest_timestamp: Int64
    """Largest time of its records, epoch milliseconds: retention counts from it."""


class RetentionReport(Marks):
    """What one retention pass removed, or would remove."""

    dry_run: bool
    """Whether nothing was removed, as requested."""
    removed: list[RemovedSegment]
    """Segments in the order of their offsets."""
    held_by: HeldSegment | Absent = None
    """What keeps all later segments from retention by time; absent if nothing does."""


class TruncateLog(Model):
    """Where the log is to end."""

    to_offset: OffsetOrEnd
    """New log end, exclusive: the records from here on are deleted. At most the log end, and not
    inside a batch. `earliest` is the log start, `latest` the high watermark."""


class TruncateReport(Marks):
    """The offsets after the log was truncated."""

    leader_epoch: LeaderEpoch
    log_id: LogId


class CompactionRange(Marks):
    """What a compaction would rewrite now."""

    first_dirty_offset: Count
    """First offset that was not compacted before."""
    end_offset: Count
    """End of what can be compacted now, exclusive; equal to `first_dirty_offset` if nothing can.
    Above it are the active segment, what is not yet stable, and what is younger than
    `min.compaction.lag.ms`."""
    clean_bytes: Count
    """Bytes of the segments that were compacted before; they are read again."""
    cleanable_bytes: Count
    """Bytes of the segments that would be compacted for the first time."""
    dirty_ratio: Annotated[float, Field(ge=0, le=1)]
    """`cleanable_bytes` as a share of both."""
    is_due: bool
    """Whether the service compacts it by itself at its next pass, by the topic's configuration."""


class CompactionReport(Marks):
    """What a compaction did; sizes are those of the segments that were rewritten."""

    first_dirty_offset: Count
    """First offset that had not been compacted before."""
    end_offset: Count
    """End of what was compacted, exclusive: below, every key has one record, or none."""
    segments_before: Count
    """Number of segments before."""
    segments_after: Count
    """Number of segments after."""
    bytes_before: Count
    """Bytes of those segments before."""
    bytes_after: Count
    """Bytes of those segments after."""
    records_read: Count
    """Records that were read."""
    records_kept: Count
    """Records that were kept."""
    records_without_key: Count
    """Records that were dropped because they have no key."""
    keys_count: Count
    """Distinct keys in the part that had not been compacted before."""
    duration_ms: Count
    """Duration in milliseconds."""


def _deletion_end(value: object) -> object:
    """Return the number of a name: nothing lies below the log start, and -1 is taken as such."""
    names: dict[object, int] = {"latest": LATEST, "earliest": 0}
    return names.get(value, value) if isinstance(value, str) else value


class DeleteRecords(Model):
    """Which records to delete."""

    before_offset: Annotated[
        int, Field(ge=-1, le=INT64_MAX), INT64, DECIMAL, BeforeValidator(_deletion_end)
    ]
    """New log start: the records below it are deleted. -1 and `latest` are the high watermark,
    `earliest` is the log start."""


class DeleteRecordsReport(Marks):
    """The offsets after records were deleted."""
