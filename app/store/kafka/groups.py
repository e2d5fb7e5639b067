"""Group offsets in the cluster: committed without members, readable by Kafka's own tools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
from kio.schema.offset_fetch.v8.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse, OffsetFetchResponseGroup
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from app.limits.shares import EVERYBODY
from app.store.kafka.cluster import Cluster
from app.store.kafka.errors import Moved, NoAnswer, ensure_done
from app.store.port import Cursor, CursorKey, CursorValue, GroupOffsets, no_such_cursor
from engine.errors import PolicyViolation, TopicNotFound
from engine.manager.topics import Topic

T = TypeVar("T")

GROUPS_TOGETHER: Final = 100
"""Groups whose offsets are asked for in one request."""

_NO_GROUP: Final = frozenset({ErrorCode.group_id_not_found, ErrorCode.unknown_topic_or_partition})

_HAS_MEMBERS: Final = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.group_subscribed_to_topic,
        ErrorCode.non_empty_group,
    }
)


class KafkaGroupOffsets(GroupOffsets):
    """The offsets of all groups, at their coordinators. Belongs to the event loop."""

    has_conditions = False

    def __init__(self, cluster: Cluster, topics: Callable[[], Mapping[str, Topic]]) -> None:
        """`topics` are those that exist: the brokers remove the offsets of others later."""
        self._cluster = cluster
        self._topics = topics

    async def names(
        self, after: str, *, at_most: int, wanted: Callable[[CursorKey], bool]
    ) -> Sequence[str]:
        """Ask every broker for its groups, then for their offsets until there are enough."""
        homes = await self._retry(self._groups)
        later = sorted(name for name in homes if name > after)
        names: list[str] = []
        for start in range(0, len(later), GROUPS_TOGETHER):
            found = await self._offsets_of(later[start : start + GROUPS_TOGETHER], homes)
            names += [name for name in sorted(found) if any(map(wanted, found[name]))]
            if len(names) >= at_most:
                break
        return names[:at_most]

    async def of_group(self, group: str) -> Sequence[tuple[CursorKey, CursorValue]]:
        async def ask(node: int) -> Mapping[CursorKey, CursorValue]:
            return (await self._fetch(node, [group], None)).get(group, {})

        return sorted((await self._at_coordinator(group, ask)).items(), key=lambda one: one[0])

    async def positions(self, group: str, keys: Sequence[CursorKey]) -> Mapping[CursorKey, int]:
        """Ask the coordinator for all of the group's."""
        found = dict(await self.of_group(group))
        return {key: found[key].offset for key in keys if key in found}

    async def get(self, key: CursorKey) -> Cursor:
        async def ask(node: int) -> Mapping[CursorKey, CursorValue]:
            return (await self._fetch(node, [key.group], key)).get(key.group, {})

        value = (await self._at_coordinator(key.group, ask)).get(key)
        if value is None:
            raise no_such_cursor(key)
        return Cursor(value, None)

    async def put(
        self,
        key: CursorKey,
        decide: Callable[[Cursor | None], CursorValue],
        maker: str = EVERYBODY,  # noqa: ARG002  # the cluster has limits of its own
    ) -> tuple[Cursor, bool]:
        """Commit an offset; another client may have done so since `decide` was asked."""
        before = await self._find(key)
        value = decide(before)
        partition = OffsetCommitRequestPartition(
            partition_index=i32(key.partition),
            committed_offset=i64(value.offset),
            committed_leader_epoch=i32(value.leader_epoch),
            committed_metadata=value.metadata,
        )
        topic = OffsetCommitRequestTopic(name=TopicName(key.topic), partitions=(partition,))
        request = OffsetCommitRequest(group_id=GroupId(key.group), member_id="", topics=(topic,))

        async def ask(node: int) -> None:
            response = await self._cluster.send(node, request, OffsetCommitResponse)
            for one in (one for found in response.topics for one in found.partitions):
                self._ensure_changed(key, one.error_code)

        await self._at_coordinator(key.group, ask)
        return Cursor(value, None), before is None

    async def delete(self, key: CursorKey, judge: Callable[[Cursor], None]) -> None:
        """Delete an offset; brokers remove a group with its last one."""
        judge(await self.get(key))
        partition = OffsetDeleteRequestPartition(partition_index=i32(key.partition))
        topic = OffsetDeleteRequestTopic(name=TopicName(key.topic), partitions=(partition,))
        request = OffsetDeleteRequest(group_id=GroupId(key.group), topics=(topic,))

        async def ask(node: int) -> None:
            response = await self._cluster.send(node, request, OffsetDeleteResponse)
            if response.error_code is ErrorCode.group_id_not_found:
                return  # it had the offset: an attempt whose answer was lost, or another client
            self._ensure_changed(key, response.error_code)
            for one in (one for found in response.topics for one in found.partitions):
                self._ensure_changed(key, one.error_code)

        await self._at_coordinator(key.group, ask)

    async def drop_topic(self, topic: str) -> None:
        """Do nothing: the coordinators remove the offsets of a deleted topic themselves."""

    # -- private steps -----------------------------------------------------------------------

    async def _find(self, key: CursorKey) -> Cursor | None:
        found = [value for one, value in await self.of_group(key.group) if one == key]
        return Cursor(found[0], None) if found else None

    async def _groups(self) -> Mapping[str, int]:
        """Return the coordinator of every group."""
        homes = {}
        for node in self._cluster.metadata.brokers:
            response = await self._cluster.send(node, ListGroupsRequest(), ListGroupsResponse)
            ensure_done(response.error_code)
            homes.update({str(one.group_id): node for one in response.groups})
        return homes

    async def _offsets_of(
        self, groups: Sequence[str], homes: Mapping[str, int]
    ) -> Mapping[str, Mapping[CursorKey, CursorValue]]:
        by_node = defaultdict(list)
        for group in groups:
            by_node[homes[group]].append(group)

        async def ask() -> Mapping[str, Mapping[CursorKey, CursorValue]]:
            found: dict[str, Mapping[CursorKey, CursorValue]] = {}
            for node, names in by_node.items():
                found.update(await self._fetch(node, names, None))
            return found

        return await self._retry(ask)

    async def _fetch(
        self, node: int, groups: Sequence[str], key: CursorKey | None
    ) -> Mapping[str, Mapping[CursorKey, CursorValue]]:
        """Return the offsets of groups, or one of them."""
        topics = None
        if key is not None:
            partitions = (i32(key.partition),)
            topics = (
                OffsetFetchRequestTopics(name=TopicName(key.topic), partition_indexes=partitions),
            )
        request = OffsetFetchRequest(
            groups=tuple(
                OffsetFetchRequestGroup(group_id=GroupId(group), topics=topics) for group in groups
            )
        )
        response = await self._cluster.send(node, request, OffsetFetchResponse)
        return {str(one.group_id): self._cursors(one) for one in response.groups}

    def _cursors(self, group: OffsetFetchResponseGroup) -> Mapping[CursorKey, CursorValue]:
        if group.error_code in _NO_GROUP:
            return {}
        ensure_done(group.error_code)
        topics = self._topics()
        cursors = {}
        for topic in group.topics:
            for one in topic.partitions if topic.name in topics else ():
                if one.error_code not in _NO_GROUP:
                    ensure_done(one.error_code)
                if one.committed_offset >= 0:
                    key = CursorKey(str(group.group_id), topic.name, int(one.partition_index))
                    epoch = int(one.committed_leader_epoch)
                    cursors[key] = CursorValue(
                        int(one.committed_offset), epoch, one.metadata or "", None
                    )
        return cursors

    def _ensure_changed(self, key: CursorKey, code: ErrorCode) -> None:
        if code in _HAS_MEMBERS:
            raise PolicyViolation(
                f"group {key.group!r} has members of Kafka's own protocol, which commit its "
                "offsets: stop them, or use another group",
                group=key.group,
            )
        if code is ErrorCode.unknown_topic_or_partition and key.topic not in self._topics():
            raise TopicNotFound(f"no topic {key.topic!r}", topic=key.topic)
        ensure_done(code)

    async def _at_coordinator(self, group: str, ask: Callable[[int], Awaitable[T]]) -> T:
        async def attempt() -> T:
            try:
                return await ask(await self._cluster.coordinator(group))
            except (Moved, NoAnswer):
                self._cluster.forget_coordinator(group)
                raise

        return await self._retry(attempt)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._cluster.retry(attempt, self._cluster.request_timeout_ms)
