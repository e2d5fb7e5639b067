"""What a coordinator in memory answers about groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from tests.support.fake_kafka_reads import NOW

if TYPE_CHECKING:
    from tests.support.fake_kafka import FakeKafka


async def find_coordinator(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    code = fake.next_error("FindCoordinator")
    return r.FindCoordinatorResponse(
        throttle_time=NOW,
        coordinators=tuple(
            r.Coordinator(
                key=key,
                node_id=i32(fake.coordinator),
                host="127.0.0.1",
                port=i32(fake.ports[fake.coordinator]),
                error_code=code,
                error_message=None,
            )
            for key in request.coordinator_keys
        ),
    )


def _group_error(fake: FakeKafka, name: str, node: int) -> ErrorCode:
    code = fake.next_error(name)
    if code is ErrorCode.none and node != fake.coordinator:
        return ErrorCode.not_coordinator
    return code


async def offset_commit(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    code = _group_error(fake, "OffsetCommit", node)
    offsets = fake.groups.setdefault(request.group_id, {})
    for topic in request.topics:
        for one in topic.partitions if code is ErrorCode.none else ():
            offsets[topic.name, int(one.partition_index)] = (
                int(one.committed_offset),
                int(one.committed_leader_epoch),
                one.committed_metadata,
            )
    topics = _topics(r.OffsetCommitResponseTopic, r.OffsetCommitResponsePartition, request, code)
    return r.OffsetCommitResponse(throttle_time=NOW, topics=topics)


def _topics(topic_type: Any, partition_type: Any, request: Any, code: ErrorCode) -> tuple[Any, ...]:
    """Answer the same for each partition of a request."""
    return tuple(
        topic_type(
            name=topic.name,
            partitions=tuple(
                partition_type(partition_index=one.partition_index, error_code=code)
                for one in topic.partitions
            ),
        )
        for topic in request.topics
    )


async def offset_fetch(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    def topics(group: Any) -> Iterator[Any]:
        stored = fake.groups.get(group.group_id, {})
        wanted = (
            stored
            if group.topics is None
            else [
                (topic.name, int(number))
                for topic in group.topics
                for number in topic.partition_indexes
            ]
        )
        for name, number in wanted:
            offset, epoch, metadata = stored.get((name, number), (-1, -1, ""))
            code = fake.next_error("OffsetFetchPartition")
            one = r.OffsetFetchResponsePartitions(
                partition_index=i32(number),
                committed_offset=i64(offset),
                committed_leader_epoch=i32(epoch),
                metadata=metadata,
                error_code=code,
            )
            yield r.OffsetFetchResponseTopics(name=name, partitions=(one,))

    return r.OffsetFetchResponse(
        throttle_time=NOW,
        groups=tuple(
            r.OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=tuple(topics(group)),
                error_code=_group_error(fake, "OffsetFetch", node),
            )
            for group in request.groups
        ),
    )


async def offset_delete(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    code = _group_error(fake, "OffsetDelete", node)
    stored = fake.groups.get(request.group_id)
    if code is ErrorCode.none and stored is None:
        code = ErrorCode.group_id_not_found
    partition_code = fake.next_error("OffsetDeletePartition")
    for topic in request.topics:
        for one in topic.partitions:
            if code is ErrorCode.none is partition_code and stored is not None:
                stored.pop((topic.name, int(one.partition_index)), None)
    topics = _topics(
        r.OffsetDeleteResponseTopic, r.OffsetDeleteResponsePartition, request, partition_code
    )
    return r.OffsetDeleteResponse(error_code=code, throttle_time=NOW, topics=topics)


async def list_groups(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    groups = fake.groups if node == fake.coordinator else ()
    return r.ListGroupsResponse(
        throttle_time=NOW,
        error_code=fake.next_error("ListGroups"),
        groups=tuple(
            r.ListedGroup(group_id=group, protocol_type="", group_state="Empty") for group in groups
        ),
    )
