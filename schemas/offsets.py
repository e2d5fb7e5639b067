"""Offset queries and watermarks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Model, Parameters
from schemas.common import Count, Int64, Marks, PartitionNumber

TIMESTAMP_PATTERN = r"^([0-9]{1,19}|earliest|latest|max_timestamp)$"


class OffsetParameters(Parameters):
    """Which offset is asked for; without `timestamp` all marks of the log."""

    timestamp: Annotated[str, Field(pattern=TIMESTAMP_PATTERN)] | None = None
    """Milliseconds (the first record at or after), `earliest`, `latest` or `max_timestamp`."""


class Offsets(Marks):
    """All marks of one log."""

    leader_epoch: Int64
    recovery_point: Count


class OffsetAtTime(Model):
    """The answer of a look-up by time; null when there is no such record below the mark."""

    offset: Count | None
    timestamp: Int64 | None
    leader_epoch: Int64 | None


class PartitionOffsets(Model):
    """One partition's marks, or one partition's answer to a look-up by time."""

    partition: PartitionNumber
    log_start_offset: Count | None = None
    high_watermark: Count | None = None
    last_stable_offset: Count | None = None
    log_end_offset: Count | None = None
    leader_epoch: Int64 | None = None
    recovery_point: Count | None = None
    offset: Count | None = None
    timestamp: Int64 | None = None
    log_id: str


class TopicOffsets(Model):
    """All partitions of a topic, one snapshot."""

    topic: str
    partitions: list[PartitionOffsets]
