"""A cluster in memory, and the logs of a service in front of it."""

from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field

import pytest

from app.operations.wait import Tail
from app.settings import Settings
from app.store.kafka.cluster import Cluster
from app.store.kafka.connection import Metadata
from app.store.kafka.log import KafkaLog, Logs
from app.store.kafka.metrics import KafkaMetrics
from engine.types import TopicPartition
from tests.support.fake_kafka import FakeKafka, fake_kafka
from tests.support.kafka_store import hurry


@dataclass
class Client:
    """The logs of a service, and what it learned of them."""

    fake: FakeKafka
    cluster: Cluster
    logs: Logs
    tail: Tail
    metrics: KafkaMetrics
    replaced: list[TopicPartition] = field(default_factory=list)
    moved: list[Hashable] = field(default_factory=list)

    async def log(self, topic: str = "events", number: int = 0) -> KafkaLog:
        """A log of a topic that the cluster has by now."""
        await self.cluster.refresh()
        topic_id = self.cluster.metadata.topics[topic].topic_id
        return self.logs.log(TopicPartition(topic, number), topic_id)


async def _ignore(_: Metadata) -> None:
    """Have nothing to do with new metadata."""


@pytest.fixture
async def fake(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeKafka]:
    """Two nodes, of which the first leads every log; what is repeated is repeated at once."""
    hurry(monkeypatch)
    async with fake_kafka(nodes=2) as fake:
        yield fake


@pytest.fixture
async def client(fake: FakeKafka) -> AsyncIterator[Client]:
    """A service in front of it."""
    settings = Settings(
        kafka=fake.addresses, kafka_request_timeout_ms=5_000, kafka_read_timeout_ms=5_000
    )
    metrics, tail = KafkaMetrics(), Tail()
    cluster = Cluster(settings, _ignore)
    replaced: list[TopicPartition] = []
    moved: list[Hashable] = []

    def wake(log: Hashable) -> None:
        moved.append(log)
        tail.wake(log)

    logs = Logs(
        settings,
        cluster,
        metrics,
        wake=wake,
        has_readers=tail.has_readers,
        on_replaced=replaced.append,
    )
    tail.on_waiting = logs.follow
    await cluster.open()
    yield Client(fake, cluster, logs, tail, metrics, replaced, moved)
    logs.close()
    await cluster.close()
