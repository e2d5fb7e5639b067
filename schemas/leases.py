"""Leases: workers of a group share the partitions of topics among themselves."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from schemas.base import Model, ResponseModel
from schemas.common import (
    DECIMAL,
    INT32,
    Count,
    Int64,
    NextPageToken,
    PartitionNumber,
    TimestampMs,
    TopicName,
    TopicShown,
)
from schemas.groups import GroupShown

LONGEST_WORKER_NAME: Final = 255
MOST_TOPICS: Final = 100
MOST_PARTITIONS: Final = 65_536
MIN_TTL_MS: Final = 1_000
MAX_TTL_MS: Final = 600_000

# Shown in the document, judged by the operation.
WorkerName = Annotated[
    str,
    Field(
        description="Name of a worker, unique in its group: 1 to 255 bytes of printable "
        "characters. Two processes with one name share one lease.",
        examples=["w-17"],
        json_schema_extra={"maxLength": LONGEST_WORKER_NAME},
    ),
]
WorkerShown = Annotated[str, Field(description="Name of the worker.")]


class ReleasedPartition(Model):
    """A partition that a worker has finished with."""

    topic: TopicName
    partition: PartitionNumber


class RenewLease(Model):
    """A worker joins its group, or goes on."""

    worker: WorkerName
    topics: Annotated[list[TopicName], Field(min_length=1, max_length=MOST_TOPICS)]
    """Topics whose partitions the worker wants a share of."""
    ttl_ms: Annotated[int, Field(ge=MIN_TTL_MS, le=MAX_TTL_MS), INT32, DECIMAL] = 30_000
    """The lease ends so long after this request, unless it is renewed. Default 30,000."""
    release: Annotated[list[ReleasedPartition], Field(max_length=MOST_PARTITIONS)] = Field(
        default_factory=list
    )
    """Partitions that the worker has finished with, its offsets committed: of those that were
    `revoking`. Default: none."""


class LeasedPartition(ResponseModel):
    """A partition that a worker may read and commit."""

    topic: TopicShown
    partition: PartitionNumber
    offset: Count
    """Where to read on: the offset that the group has stored, or the log start if it has none."""
    fence: Count
    """Sent as `Lease-Fence` with commits of this partition. Changes when another worker gets it."""


class RevokingPartition(LeasedPartition):
    """A partition that is to move to another worker."""

    expires_at: TimestampMs
    """When the partition is given away even if it is not released, epoch milliseconds."""


class Lease(ResponseModel):
    """What a worker has now; it is on disk."""

    group: GroupShown
    worker: WorkerShown
    generation: Int64
    """Changes when partitions are distributed anew."""
    expires_at: TimestampMs
    """When the lease ends, epoch milliseconds by the service's clock."""
    renew_in_ms: Count
    """How long to wait before the next request: less if others are about to release partitions."""
    waiting: Count
    """Number of partitions that the worker gets once others release them."""
    partitions: list[LeasedPartition]
    """What the worker may read and commit, by topic and number. Partitions that cannot be read at
    present are left out."""
    revoking: list[RevokingPartition]
    """What it is to finish, commit and name in `release` of its next request, which it need not
    wait for."""


class HeldPartition(ResponseModel):
    """A partition that a worker holds."""

    topic: TopicShown
    partition: PartitionNumber
    fence: Count
    """Number of this hold."""
    expires_at: TimestampMs
    """When the hold ends unless the lease is renewed, epoch milliseconds."""
    revoking: bool
    """Whether it is to move to another worker."""


class WorkerLease(ResponseModel):
    """A worker of a group."""

    worker: WorkerShown
    topics: list[str]
    """Topics that it wants a share of."""
    expires_at: TimestampMs
    """When its lease ends, epoch milliseconds by the service's clock."""
    waiting: Count
    """Number of partitions that it gets once others release them."""
    partitions: list[HeldPartition]
    """What it holds, by topic and number."""


class LeaseList(ResponseModel):
    """One page of a group's workers."""

    group: GroupShown
    generation: Int64
    """Changes when partitions are distributed anew; -1 if the group has no workers."""
    workers: list[WorkerLease]
    """Workers whose leases have not ended, by name."""
    next_page_token: NextPageToken
