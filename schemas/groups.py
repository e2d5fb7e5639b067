"""Group offsets: how far each group of readers has come, and its lag."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from schemas.base import Model, Parameters, ResponseModel
from schemas.common import (
    DECIMAL,
    INT32,
    INT32_MAX,
    INT64,
    Count,
    Int32,
    Isolation,
    NextPageToken,
    OffsetOrEnd,
    PartitionNumber,
    TimestampMs,
    TopicShown,
)

LONGEST_GROUP_NAME: Final = 255

# Shown in the document, judged by the operation: what cannot be stored cannot be found either.
GroupName = Annotated[
    str,
    Field(
        description="Group name: 1 to 255 bytes of printable characters.",
        examples=["dashboards"],
        json_schema_extra={"maxLength": LONGEST_GROUP_NAME},
    ),
]
GroupShown = Annotated[str, Field(description="Group name.")]


class PutGroupOffset(Model):
    """The position of a group in one partition."""

    offset: OffsetOrEnd
    """Next offset that the group will read; not beyond the log end. `earliest` is the log start,
    `latest` the high watermark."""
    leader_epoch: Annotated[int, Field(ge=0, le=INT32_MAX), INT32, DECIMAL] | None = None
    """Leader epoch of the last record that was read; stored and returned, not checked. Default:
    none."""
    metadata: Annotated[str, Field(examples=["run 17"])] = ""
    """Text that is stored beside the offset, at most `max_group_metadata_bytes` of `/v1/limits`.
    Default: empty."""


class GroupOffset(ResponseModel):
    """One stored offset; it is on disk."""

    group: GroupShown
    topic: TopicShown
    partition: PartitionNumber
    offset: Count
    """Next offset that the group will read."""
    leader_epoch: Int32 | None
    """Leader epoch that was stored with the offset; null if there was none."""
    metadata: str
    """Text that was stored with the offset."""
    commit_timestamp: TimestampMs | None
    """When the offset was stored, epoch milliseconds; null on a Kafka cluster."""


class GroupOffsetList(ResponseModel):
    """One page of a group's offsets."""

    group: GroupShown
    offsets: list[GroupOffset]
    """Stored offsets in the order of topic and partition."""
    next_page_token: NextPageToken


class GroupList(ResponseModel):
    """One page of the groups that have stored an offset."""

    groups: list[str]
    """Group names in order."""
    next_page_token: NextPageToken


class LagParameters(Parameters):
    """What the lag is measured against."""

    isolation: Isolation = "read_uncommitted"
    """`read_uncommitted`: against the high watermark; `read_committed`: against the last stable
    offset. Default `read_uncommitted`."""


class LagListParameters(LagParameters):
    """Which groups, and how many."""

    topic: Annotated[str, Field(max_length=249)] | None = None
    """Count only offsets in this topic, and leave out groups without any. Default: none, all
    topics."""
    search: Annotated[str, Field(max_length=255)] = ""
    """Return only groups whose name contains this, whatever the case. Default: empty, all."""
    limit: Annotated[int, Field(ge=1, le=1000), INT64, DECIMAL] = 100
    """Groups in the answer at most. Default 100."""


class GroupLagSummary(ResponseModel):
    """How far a group is behind, over all of its partitions."""

    group: GroupShown
    partitions: Count
    """Partitions for which it has stored an offset."""
    topics: list[TopicShown]
    """The first ten topics of these."""
    total_lag: Count
    """Sum of its lags, in offsets."""
    max_lag_ms: Count | None
    """Age of the oldest record that it has yet to read, in the 64 partitions with the greatest lag;
    null if there is none, or it has no timestamp."""
    missed: Count
    """Offsets that were removed before the group read them."""


class GroupLagList(ResponseModel):
    """The groups that are most behind, first."""

    isolation: Isolation
    """What the lag is measured against, as requested."""
    groups: list[GroupLagSummary]
    """Groups by falling lag in offsets, then by name."""
    groups_count: Count
    """Number of all groups that match, listed or not."""


class PartitionLag(ResponseModel):
    """Lag of a group in one partition; nulls if the partition does not exist or is not open."""

    topic: TopicShown
    partition: PartitionNumber
    offset: Count
    """Next offset that the group will read."""
    log_start_offset: Count | None
    """First offset that can be read."""
    end_offset: Count | None
    """What the lag is measured against, exclusive."""
    lag: Count | None
    """Number of offsets that the group has yet to read and that still exist."""
    lag_ms: Count | None
    """Age in milliseconds of the oldest record that the group has yet to read and that still
    exists; null if there is none, or it has no timestamp."""
    missed: Count | None
    """Number of offsets that retention or deletion removed before the group read them."""


class GroupLag(ResponseModel):
    """Lag of a group in every partition for which it has stored an offset."""

    group: GroupShown
    isolation: Isolation
    """What the lag is measured against, as requested."""
    partitions: list[PartitionLag]
    """Partitions in the order of topic and number."""
    total_lag: Count
    """Sum of all lags, in offsets."""
    max_lag_ms: Count | None
    """Greatest `lag_ms`; null if there is none."""
