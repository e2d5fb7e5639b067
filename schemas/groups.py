"""Group offsets: what readers store of their place, and how far they are behind."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from schemas.base import Model, Parameters
from schemas.common import DECIMAL, INT32_MAX, Count, Offset, PartitionNumber, TimestampMs

LONGEST_GROUP_NAME: Final = 255

# Shown in the document, judged by the operation: what cannot be stored cannot be found either.
GroupName = Annotated[
    str,
    Field(
        description="1 to 255 bytes of printable characters",
        examples=["dashboards"],
        json_schema_extra={"maxLength": LONGEST_GROUP_NAME},
    ),
]


class PutGroupOffset(Model):
    """Where a group is in one partition."""

    offset: Offset
    """The next offset the group will read; not beyond the log end."""
    leader_epoch: Annotated[int, Field(ge=0, le=INT32_MAX), DECIMAL] | None = None
    """That of the last record read; kept for the group, looked at by nobody here."""
    metadata: Annotated[str, Field(examples=["run 17"])] = ""
    """Whatever the group wants to find again beside it."""


class GroupOffset(Model):
    """One stored offset; it is on disk."""

    group: str
    topic: str
    partition: PartitionNumber
    offset: Count
    leader_epoch: int | None
    metadata: str
    commit_timestamp: TimestampMs
    """When it was stored."""


class GroupOffsetList(Model):
    """One page of a group's offsets, by topic and partition."""

    group: str
    offsets: list[GroupOffset]
    next_page_token: str | None
    """Give it as `page_token` to go on; null at the end."""


class GroupList(Model):
    """One page of the groups that have stored an offset, by name."""

    groups: list[str]
    next_page_token: str | None
    """Give it as `page_token` to go on; null at the end."""


class LagParameters(Parameters):
    """Up to where the group reads."""

    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """Against the high watermark, or against the last stable offset."""


class PartitionLag(Model):
    """How far a group is behind in one partition; nulls if the partition is not here."""

    topic: str
    partition: PartitionNumber
    offset: Count
    log_start_offset: Count | None
    end_offset: Count | None
    """What the lag is measured against; exclusive."""
    lag: Count | None
    """Offsets that are still there and not yet read."""
    missed: Count | None
    """Offsets that went, by retention or deletion, before the group had read them."""


class GroupLag(Model):
    """How far a group is behind, by topic and partition."""

    group: str
    isolation: Literal["read_uncommitted", "read_committed"]
    partitions: list[PartitionLag]
    total_lag: Count
