"""Offset queries and watermarks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Parameters, ResponseModel
from schemas.common import (
    Absent,
    Count,
    Int32,
    Int64,
    LeaderEpoch,
    LogId,
    Marks,
    PartitionNumber,
    TopicShown,
)

TIMESTAMP_PATTERN = r"^([0-9]{1,19}|earliest|earliest_local|latest|max_timestamp)$"

TimestampOrName = Annotated[str, Field(pattern=TIMESTAMP_PATTERN, examples=["1788000000123"])]


class OffsetParameters(Parameters):
    """Which offsets to return; without `timestamp` the marks of each log."""

    timestamp: TimestampOrName | None = None
    """Epoch milliseconds (the first record at or after), `earliest`, `earliest_local` (the first
    offset on the disk, where the archive has earlier ones), `latest` (the high watermark) or
    `max_timestamp` (the record with the largest timestamp). Default: none, which returns log start,
    high watermark and log end."""


class OffsetAtParameters(Parameters):
    """The time to look up."""

    timestamp: TimestampOrName
    """Epoch milliseconds (the first record at or after), `earliest`, `earliest_local` (the first
    offset on the disk, where the archive has earlier ones), `latest` (the high watermark) or
    `max_timestamp` (the record with the largest timestamp)."""


class Offsets(Marks):
    """The offsets of one log."""

    leader_epoch: LeaderEpoch
    recovery_point: Count
    """Offset below which a restart scans nothing, because indexes and snapshots are on disk too."""
    archived_offset: Count | Absent = None
    """End of what the archive has, exclusive; absent without an archive, or before its first
    look."""
    local_log_start_offset: Count | Absent = None
    """First offset on the disk: only the archive has what is between the log start and this one.
    Absent without an archive."""
    log_id: LogId


class OffsetAtTime(ResponseModel):
    """The result of a look-up by time; nulls if no record below the high watermark matches."""

    offset: Count | None
    """Offset of the record."""
    timestamp: Int64 | None
    """Timestamp of the record, epoch milliseconds; null for `earliest` and `latest`."""
    leader_epoch: Int32 | None
    """Leader epoch of the record."""


class PartitionOffsets(ResponseModel):
    """The offsets of one partition; with `timestamp` the result of the look-up instead."""

    partition: PartitionNumber
    log_start_offset: Count | Absent = None
    """First offset that can be read; without `timestamp` only."""
    high_watermark: Count | Absent = None
    """End of what is flushed to disk, exclusive; without `timestamp` only."""
    last_stable_offset: Count | Absent = None
    """End of what `read_committed` readers see, exclusive; without `timestamp` only."""
    log_end_offset: Count | Absent = None
    """Offset that the next record gets; without `timestamp` only."""
    leader_epoch: Int32 | None = None
    """Leader epoch of the log; with `timestamp` that of the record, null if there is none."""
    recovery_point: Count | Absent = None
    """Offset below which a restart scans nothing; without `timestamp` only."""
    archived_offset: Count | Absent = None
    """End of what the archive has, exclusive; without `timestamp`, and with an archive only."""
    local_log_start_offset: Count | Absent = None
    """First offset on the disk; without `timestamp`, and with an archive only."""
    offset: Count | None = None
    """With `timestamp` only: offset of the record, null if there is none."""
    timestamp: Int64 | None = None
    """With `timestamp` only: timestamp of the record, epoch milliseconds, or null."""
    log_id: LogId


class TopicOffsets(ResponseModel):
    """The offsets of all partitions of a topic, as of one moment."""

    topic: TopicShown
    partitions: list[PartitionOffsets]
    """One entry for each partition, by number."""
