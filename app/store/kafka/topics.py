"""The topics of a cluster: what its metadata says, and how they change.

A configuration is what a topic overrides, and what is in effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NamedTuple, Self, TypeVar

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from app.errors import BackendUnavailable
from app.settings import Settings
from app.store.kafka.cluster import RETRY_SECONDS, Cluster
from app.store.kafka.connection import NO_NODE, Metadata, uuid_of
from app.store.kafka.errors import NoAnswer, ensure_done, milliseconds
from app.store.kafka.partition import KafkaPartition
from app.store.port import StoreTotals, TopicFigures, Topics
from engine.checkpoint.kafka_files import format_topic_id
from engine.config import LogConfig
from engine.errors import (
    InvalidConfig,
    InvalidRequestValue,
    PartitionNotFound,
    TopicConflict,
    TopicNotFound,
)
from engine.manager.topics import (
    Overrides,
    Topic,
    ensure_may_be_changed,
    ensure_same,
    ensure_valid_name,
)
from engine.topic_keys import TOPIC_KEYS, EffectiveValue, canonical
from engine.types import TopicPartition

TOPIC_RESOURCE: Final = i8(2)
FROM_TOPIC: Final = 1
"""The source of a value that is the topic's own."""
DESCRIBED_TOGETHER: Final = 200
"""Topics of one request."""

_SET: Final = i8(0)
_DELETE: Final = i8(1)


class TopicConfig(NamedTuple):
    """The configuration of one topic."""

    overrides: Mapping[str, str]
    """The topic's own values, in canonical spelling."""
    values: Mapping[str, EffectiveValue]
    """Every value in effect."""
    config: LogConfig

    @classmethod
    def of(cls, entries: Iterable[DescribeConfigsResourceResult]) -> Self:
        values = {
            entry.name: EffectiveValue(
                entry.value, "topic" if entry.config_source == FROM_TOPIC else "default"
            )
            for entry in sorted(entries, key=lambda entry: entry.name)
            if entry.value is not None
        }
        overrides = {name: one.value for name, one in values.items() if one.source == "topic"}
        effective = {name: one.value for name, one in values.items()}
        return cls(dict(_spelled(overrides)), values, LogConfig.of(dict(_known(effective))))


def _spelled(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield values in canonical spelling; those that are not known here, as they are."""
    known = dict(_known(values))
    for name, value in values.items():
        yield name, known.get(name, value)


def _known(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the values that mean something here, in canonical spelling."""
    for name, value in values.items():
        with suppress(InvalidConfig):
            yield from canonical({name: value}).items()


async def describe(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicConfig]:
    """Return the configurations of topics, as far as the cluster gives them."""
    found: dict[str, TopicConfig] = {}
    for first in range(0, len(names), DESCRIBED_TOGETHER):
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
                )
                for name in names[first : first + DESCRIBED_TOGETHER]
            )
        )
        response = await cluster.send(cluster.any_node(), request, DescribeConfigsResponse)
        for one in response.results:
            if one.error_code is ErrorCode.none:
                found[one.resource_name] = TopicConfig.of(one.configs)
            await asyncio.sleep(0)  # each takes some 100 µs of the loop
    return found


async def alter(
    cluster: Cluster, name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Change a topic's own values; raises what `ensure_done` raises."""
    set_values = [
        AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in after.items()
        if before.get(key) != value
    ]
    deleted = [
        AlterableConfig(name=key, config_operation=_DELETE, value=None)
        for key in before
        if key not in after
    ]
    if not set_values and not deleted:
        return
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configs=(*set_values, *deleted)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    response = await cluster.send(cluster.any_node(), request, IncrementalAlterConfigsResponse)
    for one in response.responses:
        ensure_done(one.error_code, one.error_message)


def wanted_overrides(overrides: Mapping[str, object]) -> dict[str, str]:
    """Return values as a client wants them, in canonical spelling; raises InvalidConfig.

    Names that are not known here are the cluster's to judge.
    """
    known = {name: value for name, value in overrides.items() if name in TOPIC_KEYS}
    others = {name: str(value) for name, value in overrides.items() if name not in TOPIC_KEYS}
    return {**canonical(known), **others}  # type: ignore[arg-type]  # the request's model checks it


T = TypeVar("T")

LOOK_SECONDS: Final = 0.1
"""Requests for topics that do not exist have the metadata read no more often than this."""
NO_CONFIG: Final = TopicConfig.of(())
"""Kafka's defaults, for a topic whose configuration the cluster does not show."""


class KafkaTopics(Topics):
    """The topics of a cluster. Belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        *,
        make_partition: Callable[[TopicPartition, str, TopicConfig], KafkaPartition],
        on_gone: Callable[[str], None],
        wake: Callable[[Hashable], None],
    ) -> None:
        """`on_gone` gets the name of a topic that was deleted, or created again.

        `wake` gets each log of a topic that has more partitions than before.
        """
        self._settings = settings
        self._cluster = cluster
        self._make_partition = make_partition
        self._on_gone = on_gone
        self._wake = wake
        self._topics: Mapping[str, Topic] = MappingProxyType({})
        self._configs: Mapping[str, TopicConfig] = {}
        self._configs_read_at = -1e9
        self._partitions: dict[TopicPartition, KafkaPartition] = {}
        self._looked_at = 0.0
        self._look: asyncio.Task[None] | None = None
        """The latest of `look_for`."""
        self._changing: set[str] = set()
        """Topics whose configuration is read again with the next metadata."""
        self._missing: set[str] = set()
        """Topics that the last metadata did not have."""
        self._deleted: set[str] = set()
        """Ids of topics that were deleted here; a broker may still list them."""

    # -- what is known ------------------------------------------------------------------------

    def all(self) -> Mapping[str, Topic]:
        return self._topics

    def topic(self, name: str) -> Topic:
        found = self._topics.get(name)
        if found is None:
            raise TopicNotFound(f"no topic {name!r}", topic=name)
        return found

    def effective(self, topic: Topic) -> Mapping[str, EffectiveValue]:
        return self._configs.get(topic.name, NO_CONFIG).values

    def offline(self) -> Sequence[TopicPartition]:
        """Return the partitions without a leader."""
        return [
            TopicPartition(name, number)
            for name, topic in self._cluster.metadata.topics.items()
            if name in self._topics
            for number, leader in enumerate(topic.leaders)
            if leader.node == NO_NODE
        ]

    async def figures(self, topics: Sequence[Topic]) -> list[TopicFigures]:
        """Return nothing: brokers would have to be asked about each."""
        return [TopicFigures(None, None)] * len(topics)

    async def totals(self) -> StoreTotals:
        """Return whether each partition has a leader."""
        return StoreTotals(None, not self.offline(), None, None)

    def partition(self, name: str, number: int) -> KafkaPartition:
        topic = self.topic(name)
        if not 0 <= number < topic.partitions:
            raise PartitionNotFound(
                f"topic {name!r} has no partition {number}", topic=name, partition=number
            )
        key = TopicPartition(name, number)
        found = self._partitions.get(key)
        if found is None:
            config = self._configs.get(name, NO_CONFIG)
            found = self._partitions[key] = self._make_partition(key, topic.topic_id, config)
        return found

    # -- metadata -----------------------------------------------------------------------------

    async def take(self, metadata: Metadata) -> None:
        """Publish the topics of new metadata, with the configurations of those that are new."""
        known = self._topics
        listed = {
            name: one for name, one in metadata.topics.items() if one.topic_id not in self._deleted
        }
        now = asyncio.get_running_loop().time()
        is_due = now - self._configs_read_at >= self._settings.kafka_config_interval_ms / 1000
        wanted = [
            name
            for name, one in listed.items()
            if is_due
            or name in self._changing
            or name not in known
            or known[name].topic_id != one.topic_id
        ]
        described = await describe(self._cluster, wanted)
        if is_due:
            self._configs_read_at = now
        configs = {
            name: described.get(name) or self._configs.get(name, NO_CONFIG) for name in listed
        }
        topics = {
            name: self._topic_of(name, one.topic_id, len(one.leaders), configs[name])
            for name, one in listed.items()
        }
        for name in known.keys() - topics.keys():
            # A broker that has just started may not know every topic yet: it is asked again.
            if name not in self._missing and known[name].topic_id not in self._deleted:
                topics[name], configs[name] = known[name], self._configs[name]
        self._missing = known.keys() - listed.keys()
        self._publish(topics, configs)

    def _topic_of(self, name: str, topic_id: str, partitions: int, config: TopicConfig) -> Topic:
        before = self._topics.get(name)
        if before is not None and (before.topic_id, before.partitions, before.overrides) == (
            topic_id,
            partitions,
            config.overrides,
        ):
            return before
        return Topic(name, topic_id, partitions, config.overrides)

    def _publish(self, topics: Mapping[str, Topic], configs: Mapping[str, TopicConfig]) -> None:
        before, self._topics = self._topics, MappingProxyType(dict(topics))
        self._configs = configs
        gone = {
            name
            for name, topic in before.items()
            if name not in topics or topics[name].topic_id != topic.topic_id
        }
        for key, partition in list(self._partitions.items()):
            if key.topic in gone:
                del self._partitions[key]
            else:
                partition.configure(configs[key.topic].config)
                if (
                    key.topic in before
                    and topics[key.topic].partitions > before[key.topic].partitions
                ):
                    self._wake(partition.identity)  # a tail of the topic ends, to follow all
        for name in gone:
            self._on_gone(name)

    async def look_for(self, name: str) -> None:  # noqa: ARG002  # one request brings all of them
        loop = asyncio.get_running_loop()
        look, now = self._look, loop.time()
        if look is None or (look.done() and now - self._looked_at >= LOOK_SECONDS):
            self._looked_at = now
            look = self._look = loop.create_task(self._cluster.refresh())
        await asyncio.wait({look})  # others may have asked for it

    def replace(self, topic_partition: TopicPartition) -> None:
        """Forget the handle of a partition whose log was truncated; the next one is another."""
        self._partitions.pop(topic_partition, None)
        self._on_gone(topic_partition.topic)

    # -- changes ------------------------------------------------------------------------------

    async def create(self, name: str, partitions: int, overrides: Overrides) -> tuple[Topic, bool]:
        """Create a topic, and wait until it has leaders."""
        ensure_valid_name(name)
        self._ensure_partitions(partitions)
        return await self._create(Topic(name, "", partitions, wanted_overrides(overrides)))

    async def ensure_internal(self, name: str, overrides: Overrides) -> None:
        """Create the topic unless it exists, whoever made it and however it is configured."""
        if name not in self._topics:
            with suppress(TopicConflict):  # an operator or another replica has made it
                await self._create(Topic(name, "", 1, wanted_overrides(overrides)))

    async def _create(self, wanted: Topic) -> tuple[Topic, bool]:
        """Create a topic of any name; return it, and False if it was there.

        The controller decides: a broker may still list a topic that was deleted elsewhere.
        """
        request = CreateTopicsRequest(
            topics=(
                CreatableTopic(
                    name=TopicName(wanted.name),
                    num_partitions=i32(wanted.partitions),
                    replication_factor=i16(self._settings.kafka_replication_factor),
                    assignments=(),
                    configs=tuple(
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in wanted.overrides.items()
                    ),
                ),
            ),
            timeout=milliseconds(self._cluster.request_timeout_ms),
        )

        async def create() -> str | None:
            node = self._cluster.any_node()
            response = await self._cluster.send(node, request, CreateTopicsResponse)
            (one,) = response.topics
            is_known = wanted.name in self._topics
            if one.error_code is ErrorCode.topic_already_exists or (
                one.error_code is ErrorCode.topic_authorization_failed and is_known
            ):
                return None
            ensure_done(one.error_code, one.error_message)
            assert one.topic_id is not None, "brokers send the id since version 7"
            return format_topic_id(one.topic_id.bytes)

        topic_id = await self._administer(create)
        if topic_id is None:
            topic = await self._when(wanted.name, lambda: self._with_leaders(wanted.name, 1))
            return ensure_same(topic, wanted), False
        topic = await self._when(
            wanted.name, lambda: self._with_leaders(wanted.name, wanted.partitions, topic_id)
        )
        return topic, True

    async def update(self, name: str, changes: Overrides, partitions: int | None) -> Topic:
        """Change the configuration, then add the partitions."""
        before = self.topic(name)
        ensure_may_be_changed(before)
        wanted = {**before.overrides}
        for key in [key for key, value in changes.items() if value is None]:
            wanted.pop(key, None)
        added = {key: value for key, value in changes.items() if value is not None}
        after = wanted_overrides({**wanted, **added})
        count = before.partitions if partitions is None else partitions
        if count < before.partitions:
            raise InvalidRequestValue(
                f"topic {name!r} has {before.partitions} partitions and cannot have fewer",
                topic=name,
                partitions=before.partitions,
            )
        self._ensure_partitions(count)
        await self._administer(lambda: alter(self._cluster, name, before.overrides, after))
        if count > before.partitions:
            await self._administer(lambda: self._grow(name, count))

        def changed() -> Topic | None:
            topic = self._with_leaders(name, count)
            return topic if topic is not None and topic.overrides == after else None

        return await self._when(name, changed)

    async def _grow(self, name: str, partitions: int) -> None:
        topic = CreatePartitionsTopic(name=TopicName(name), count=i32(partitions), assignments=None)
        request = CreatePartitionsRequest(
            topics=(topic,),
            timeout=milliseconds(self._cluster.request_timeout_ms),
            validate_only=False,
        )
        node = self._cluster.any_node()
        response = await self._cluster.send(node, request, CreatePartitionsResponse)
        for one in response.results:
            # After a repetition, the first request may have done it.
            grown = one.error_code is ErrorCode.invalid_partitions
            await self._cluster.refresh()
            if not (grown and self.topic(name).partitions == partitions):
                ensure_done(one.error_code, one.error_message)

    async def delete(self, name: str) -> None:
        topic = self.topic(name)
        ensure_may_be_changed(topic)
        state = DeleteTopicState(name=None, topic_id=uuid_of(topic.topic_id))
        request = DeleteTopicsRequest(
            topics=(state,), timeout=milliseconds(self._cluster.request_timeout_ms)
        )

        async def delete() -> None:
            node = self._cluster.any_node()
            response = await self._cluster.send(node, request, DeleteTopicsResponse)
            for one in response.responses:
                if one.error_code is not ErrorCode.unknown_topic_id:
                    ensure_done(one.error_code, one.error_message)

        await self._administer(delete)
        self._deleted.add(topic.topic_id)
        await self._cluster.refresh()

    async def allocate_producer(self) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout=milliseconds(60_000)
        )

        async def allocate() -> tuple[int, int]:
            node = self._cluster.any_node()
            response = await self._cluster.send(node, request, InitProducerIdResponse)
            ensure_done(response.error_code)
            return int(response.producer_id), int(response.producer_epoch)

        return await self._administer(allocate)

    def _ensure_partitions(self, partitions: int) -> None:
        limit = self._settings.max_partitions_per_topic
        if not 1 <= partitions <= limit:
            raise InvalidRequestValue(
                f"a topic has 1 to {limit} partitions, not {partitions}",
                limit="max_partitions_per_topic",
                partitions=partitions,
            )

    async def _administer(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._cluster.retry(attempt, self._cluster.request_timeout_ms)

    def _with_leaders(
        self, name: str, partitions: int, topic_id: str | None = None
    ) -> Topic | None:
        """Return the topic, that of an id if one is given, once each partition has a leader."""
        topic = self._topics.get(name)
        if topic is None or topic.partitions < partitions:
            return None
        if topic_id is not None and topic.topic_id != topic_id:
            return None
        with suppress(NoAnswer, TopicNotFound):
            for number in range(partitions):
                self._cluster.leader(name, number)
            return topic
        return None

    async def _when(self, name: str, look: Callable[[], Topic | None]) -> Topic:
        """Return what `look` returns once the metadata shows it: brokers learn of it later."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._cluster.request_timeout_ms / 1000
        while True:
            self._changing.add(name)
            await self._cluster.refresh()
            self._changing.discard(name)
            topic = look()
            if topic is not None:
                return topic
            if loop.time() >= deadline:
                raise BackendUnavailable("the brokers do not show the changed topic in time")
            await asyncio.sleep(RETRY_SECONDS)
