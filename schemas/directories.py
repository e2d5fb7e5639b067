"""Data directories, and partitions that move between them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Model
from schemas.common import Count, Int64, PartitionNumber


class DataDirectory(Model):
    """One data directory; its path is its name in requests too."""

    path: str
    status: Literal["online", "offline"]
    detail: str | None
    """Why it is offline."""
    partitions: Count
    size_bytes: Count
    """Of the segments of those partitions."""


class DataDirectoryList(Model):
    """All data directories, the preferred one first."""

    directories: list[DataDirectory]


class DamagedPlace(Model):
    """One damaged place in a `.log` file."""

    topic: str
    partition: PartitionNumber
    file: str
    position: Count
    """Of the first byte of the batch."""
    offset: Int64
    """Of its first record as the batch has it; -1 if that cannot be told."""
    problem: str


class ScrubReport(Model):
    """What the last whole search of everything committed for damage found."""

    interval_ms: Count
    """From the end of one search to the next; 0: there are none."""
    start_timestamp: Int64
    """Milliseconds since the epoch; -1 before the first search has come to its end."""
    end_timestamp: Int64
    checked_bytes: Count
    damaged_count: Count
    damage: list[DamagedPlace]
    """The first thousand of them; empty: all that was checked is whole."""


class MovePartition(Model):
    """Where a partition is to lie."""

    directory: Annotated[str, Field(min_length=1, max_length=4096)]
    """The path of a data directory, exactly as `listDirectories` has it."""


class MoveReport(Model):
    """Where a partition lies, and how its last move is going; a restart forgets the move."""

    topic: str
    partition: PartitionNumber
    directory: str
    """Where it lies now."""
    state: Literal["idle", "waiting", "copying", "done", "failed"]
    """`idle` if no move was asked for since the start."""
    target: str | None
    """Where the last move leads, or led."""
    first_offset: Int64
    """Copied are the offsets from here; -1 while copying has not begun."""
    copied_offset: Int64
    """Exclusive."""
    end_offset: Int64
    """Exclusive; it goes on while records are appended."""
    problem: str | None
    """Why the move failed; the partition is where it was."""
