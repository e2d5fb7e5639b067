"""The requests of readers: Fetch by topic id, so that it never reads another topic of that name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v13.response import FetchResponse, PartitionData
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v7.response import ListOffsetsPartitionResponse, ListOffsetsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from app.store.kafka.errors import Moved, ensure_done, milliseconds
from engine.types import FetchIsolation, TopicPartition

CONSUMER: Final = BrokerId(-1)
EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3

LogKey: TypeAlias = tuple[UUID, int]
"""The topic id and the partition of a log."""


class Position(NamedTuple):
    """Where a fetch reads in one log, and how much."""

    log: LogKey
    offset: int
    leader_epoch: int
    max_bytes: int


def fetch_request(
    positions: Iterable[Position],
    *,
    isolation: FetchIsolation,
    max_bytes: int,
    max_wait_ms: int = 0,
) -> FetchRequest:
    """Return a fetch that waits for the first byte, at most `max_wait_ms`."""
    topics: dict[UUID, list[FetchPartition]] = {}
    for (topic_id, partition), offset, leader_epoch, partition_bytes in positions:
        topics.setdefault(topic_id, []).append(
            FetchPartition(
                partition=i32(partition),
                current_leader_epoch=i32(leader_epoch),
                fetch_offset=i64(offset),
                partition_max_bytes=i32(partition_bytes),
            )
        )
    return FetchRequest(
        max_wait=milliseconds(max_wait_ms),
        min_bytes=i32(1),
        max_bytes=i32(max_bytes),
        isolation_level=_level(isolation),
        topics=tuple(
            FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
        forgotten_topics_data=(),
        rack_id="",
    )


def _level(isolation: FetchIsolation) -> i8:
    return i8(int(isolation is FetchIsolation.TXN_COMMITTED))


def fetched_logs(response: FetchResponse) -> Mapping[LogKey, PartitionData]:
    """Return the logs of a response; raises Moved, or what the broker refuses."""
    ensure_done(response.error_code)
    return {
        (topic.topic_id, int(one.partition_index)): one
        for topic in response.responses
        if topic.topic_id is not None
        for one in topic.partitions
    }


def list_offsets_request(
    logs: Iterable[tuple[TopicPartition, int]],
    timestamp: int,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
) -> ListOffsetsRequest:
    """Return a look-up by time in logs, each with its leader epoch, below a reader's bound."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), leader_epoch in logs:
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(
                partition_index=i32(partition),
                current_leader_epoch=i32(leader_epoch),
                timestamp=i64(timestamp),
            )
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=_level(isolation),
        topics=tuple(
            ListOffsetsTopic(name=TopicName(name), partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


def listed_logs(
    response: ListOffsetsResponse,
) -> Mapping[TopicPartition, ListOffsetsPartitionResponse]:
    """Return the logs of a response."""
    return {
        TopicPartition(topic.name, int(one.partition_index)): one
        for topic in response.topics
        for one in topic.partitions
    }


def ensure_read(code: ErrorCode) -> None:
    """Raise Moved if the broker can tell later, or another one can; or what it refuses."""
    if code is ErrorCode.offset_not_available:  # a new leader has not caught up yet
        raise Moved(code)
    ensure_done(code)
