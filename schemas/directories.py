"""Data directories, and partitions that move between them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Model, ResponseModel
from schemas.common import Count, DamagedPlace, Int64, Marks, PartitionNumber, TopicShown


class DataDirectory(ResponseModel):
    """One data directory; its path is its name in requests too."""

    path: str
    """Path on the server, as configured."""
    status: Literal["online", "offline"]
    """`offline` after a disk error: its partitions respond with 503 until a restart."""
    detail: str | None
    """Why the directory is offline, with the file's path within it; null while it is online."""
    partitions: Count
    """Number of partitions in the directory."""
    size_bytes: Count
    """Bytes of the segments of those partitions."""
    total_bytes: Count | None
    """Size of the directory's file system; null if the server cannot tell."""
    free_bytes: Count | None
    """Free bytes of that file system; null if the server cannot tell."""


class DataDirectoryList(ResponseModel):
    """All data directories."""

    directories: list[DataDirectory]
    """The preferred directory first."""


class ScrubReport(ResponseModel):
    """Result of the last complete scrub: a check of every committed batch."""

    interval_ms: Count
    """Milliseconds from the end of one scrub to the start of the next; 0: scrubbing is off."""
    start_timestamp: Int64
    """Start of the last complete scrub, epoch milliseconds; -1 before the first one has ended."""
    end_timestamp: Int64
    """End of the last complete scrub, epoch milliseconds; -1 before the first one has ended."""
    checked_bytes: Count
    """Bytes that were checked."""
    damaged_count: Count
    """Number of damaged places found."""
    damage: list[DamagedPlace]
    """The first 1,000 damaged places; empty if there are none."""


class MovePartition(Model):
    """Target of a move."""

    directory: Annotated[str, Field(min_length=1, max_length=4096)]
    """Path of a data directory, exactly as `listDirectories` returns it."""


class Move(ResponseModel):
    """One move of a partition between data directories."""

    topic: TopicShown
    partition: PartitionNumber
    source: str
    """Data directory that the partition is moved from."""
    target: str
    """Data directory that it is moved to."""
    state: Literal["waiting", "copying", "done", "failed"]
    """`waiting` for the moves requested before."""
    first_offset: Int64
    """First offset that is copied; -1 before copying has begun."""
    copied_offset: Int64
    """End of what has been copied, exclusive."""
    end_offset: Int64
    """End of the log, exclusive; it rises while records are appended."""
    problem: str | None
    """Why the move failed; null unless `state` is `failed`. The partition stays where it was."""


class MoveList(ResponseModel):
    """The moves of partitions since the start; the oldest finished ones are forgotten."""

    moves: list[Move]
    """Moves, the newest first."""


class MoveReport(Marks):
    """Where a partition is stored, and the state of its last move; a restart forgets the move."""

    topic: TopicShown
    partition: PartitionNumber
    directory: str
    """Data directory that holds the partition now."""
    state: Literal["idle", "waiting", "copying", "done", "failed"]
    """`idle` if no move was requested since the start."""
    target: str | None
    """Data directory that the last move leads to; null if there was no move."""
    first_offset: Int64
    """First offset that is copied; -1 before copying has begun."""
    copied_offset: Int64
    """End of what has been copied, exclusive."""
    end_offset: Int64
    """End of the log, exclusive; it rises while records are appended."""
    problem: str | None
    """Why the move failed; null unless `state` is `failed`. The partition stays where it was."""
