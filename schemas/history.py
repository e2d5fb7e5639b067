"""What the service did in the last 15 minutes, and what it has now."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import ResponseModel
from schemas.common import Count, Int32, Int64, TopicShown

Latency = Annotated[float, Field(ge=0)]


class HistoryPoint(ResponseModel):
    """What happened in one interval."""

    timestamp: Int64
    """End of the interval, epoch milliseconds."""
    duration_ms: Count
    """Its length; a rate is a count divided by it."""
    requests: Count
    """Requests that were answered."""
    append_requests: Count
    """Requests of those that appended."""
    records_in: Count
    """Records that were appended."""
    bytes_in: Count
    """Bytes of the batches that were appended."""
    bytes_out: Count
    """Bytes of the batches that were read."""
    append_p50_ms: Latency | None
    """Median time from an append's head to its answer; null without appends."""
    append_p99_ms: Latency | None
    """Time that one append of a hundred exceeded; null without appends."""
    commit_p99_ms: Latency | None
    """Time that one sync of a hundred exceeded, or on a Kafka cluster one answer to a produce;
    null without any."""
    readers: Count
    """Long polls and tails at the end of the interval."""


class TopicHistory(ResponseModel):
    """What was appended to one topic, by the minute, and how large it is."""

    topic: TopicShown
    records_in: list[Count]
    """Records that were appended, one number for each of `minutes`."""
    bytes_in: list[Count]
    """Bytes of their batches, one number for each of `minutes`."""
    size_bytes: Count | None
    """Bytes of its open logs; null on a Kafka cluster."""


class TopicRefusal(ResponseModel):
    """A request to an ingest URL that was refused."""

    topic: TopicShown
    timestamp: Int64
    """When it was refused, epoch milliseconds."""
    reason: str
    """Why, by the reasons of `tidelog_ingest_refused_total`."""
    status: Int32
    """HTTP status of the answer."""


class ServiceTotals(ResponseModel):
    """Sums over all topics, internal ones apart."""

    topics: Count
    """Number of topics."""
    partitions: Count
    """Number of their partitions."""
    size_bytes: Count | None
    """Bytes of all logs that are open; null on a Kafka cluster."""
    is_complete: bool
    """Whether all partitions are open: else `size_bytes` is that of the others."""
    unflushed_bytes: Count | None
    """Bytes that are written and not synced yet; null on a Kafka cluster."""
    uncleanable_partitions: Count
    """Compacted partitions that are not compacted until a restart."""
    late_transaction_partitions: Count | None
    """Partitions with an overdue transaction, for which `read_committed` readers wait; null on a
    Kafka cluster."""


class History(ResponseModel):
    """The last 15 minutes, the oldest first; a restart empties it."""

    points: list[HistoryPoint]
    """One for about every five seconds."""
    minutes: list[Int64]
    """Ends of the whole minutes that `topics` has numbers of, epoch milliseconds."""
    topics: list[TopicHistory]
    """At most 100: those to which most bytes were appended, then the largest."""
    refusals: list[TopicRefusal]
    """The last 20 requests to ingest URLs that were refused, the newest first;
    `listIngestRefusals` says what their senders were told."""
    totals: ServiceTotals
    """Sums as of now."""
