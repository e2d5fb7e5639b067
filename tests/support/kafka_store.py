"""The Kafka side of the store in front of brokers in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.settings import Settings
from app.store.kafka import appends, cluster, documents, log, topics
from app.store.kafka.read import followers
from app.store.kafka.store import KafkaStore
from app.store.port import Partition
from engine.clock import SystemClock
from engine.fs.posix import PosixFileSystem
from engine.log.results import Appended
from engine.types import Buffer
from tests.support.fake_kafka import FakeKafka


@dataclass
class Opened:
    """A store that is open, and its calls to the service."""

    store: KafkaStore
    settings: Settings
    gone: list[str] = field(default_factory=list)
    moved: list[Hashable] = field(default_factory=list)

    async def partition(self, topic: str = "events", number: int = 0) -> Partition:
        """A partition of a topic that the cluster has by now."""
        await self.store.topics.look_for(topic)
        return self.store.topics.partition(topic, number)

    async def append(
        self, partition: Partition, data: Buffer, acks: str = "all", *, checked: bool = False
    ) -> Appended:
        """Append whole batches."""

        async def run(work: Callable[[], Sequence[object]]) -> object:
            return work()

        return await partition.append(lambda: data, acks=acks, checked=checked, run=run)  # type: ignore[arg-type]  # it runs any work


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything repeated at once."""
    for module in (appends, cluster, documents, followers, log, topics):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(cluster, "RECONNECT_SECONDS", 0.0)
    monkeypatch.setattr(topics, "LOOK_SECONDS", 0.0)


@asynccontextmanager
async def opened(fake: FakeKafka, directory: Path, **settings: object) -> AsyncIterator[Opened]:
    """Open a store; the directory has no data of it."""
    wanted = {"kafka": fake.addresses, "data_directory": directory, **settings}
    made = Settings.model_validate(wanted)
    gone, moved = list[str](), list[Hashable]()
    store = KafkaStore(
        made,
        clock=SystemClock(),
        fs=PosixFileSystem(),
        on_moved=moved.append,
        has_readers=lambda _: False,
        on_gone=gone.append,
    )
    await store.open()
    try:
        yield Opened(store, made, gone, moved)
    finally:
        await store.close()
