"""The sides of the store's port: what implements it, opened for a test."""

from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from app.limits.executors import Workers
from app.settings import Settings
from app.store.kafka.store import KafkaStore
from app.store.local.store import LocalStore
from app.store.port import Partition, Store
from engine.clock import SystemClock
from engine.fs.posix import PosixFileSystem
from engine.metrics import NullRecorder
from tests.support.cluster import bootstrap_of_cluster
from tests.support.fake_kafka import fake_kafka


@dataclass
class Side:
    """An open store, its threads, and the logs that it said have moved."""

    store: Store
    workers: Workers
    moved: list[Hashable] = field(default_factory=list)

    async def partition(self, topic: str = "events") -> Partition:
        """The only partition of a new topic."""
        await self.store.topics.create(topic, 1, {})
        return self.store.topics.partition(topic, 0)


@asynccontextmanager
async def local(directory: Path) -> AsyncIterator[Side]:
    """The engine in this process."""
    settings, moved = Settings(data_directory=directory), list[Hashable]()
    workers = Workers(settings)
    store = LocalStore(
        settings,
        workers=workers,
        clock=SystemClock(),
        fs=PosixFileSystem(),
        recorder=NullRecorder(),
        on_moved=moved.append,
    )
    await store.open()
    yield Side(store, workers, moved)
    await store.close()
    workers.close()


@asynccontextmanager
async def kafka(addresses: str, directory: Path) -> AsyncIterator[Side]:
    """A Kafka cluster; the directory has nothing of it."""
    settings, moved = Settings(data_directory=directory, kafka=addresses), list[Hashable]()
    workers = Workers(settings)
    store = KafkaStore(
        settings,
        clock=SystemClock(),
        fs=PosixFileSystem(),
        on_moved=moved.append,
        has_readers=lambda _: False,
        on_gone=lambda _: None,
    )
    await store.open()
    yield Side(store, workers, moved)
    await store.close()
    workers.close()


TOPICS = {"events", "gone", "kept", "other"}
"""What the tests create; a cluster has them from the test before."""

OpenSide = Callable[[Path], AbstractAsyncContextManager[Side]]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The addresses of three brokers."""
    with bootstrap_of_cluster(tmp_path_factory.mktemp("cluster")) as addresses:
        yield addresses


@pytest.fixture(
    params=[
        "local",
        "fake",
        pytest.param("cluster", marks=[pytest.mark.long, pytest.mark.needs("java")]),
    ]
)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of a side, or the brokers' addresses: a cluster cannot start in an event loop."""
    name: str = request.param
    return request.getfixturevalue(name) if name == "cluster" else name


@pytest.fixture
async def open_side(backend: str, tmp_path: Path, anyio_backend: str) -> AsyncIterator[OpenSide]:
    """What opens a side on a directory; opened there again, it has what was durable.

    Every test here runs with the engine, with brokers in memory, and with a Kafka cluster.
    """
    if backend == "local":
        yield local
    elif backend == "fake":
        async with fake_kafka(nodes=2) as fake:
            yield partial(kafka, fake.addresses)
    else:
        async with kafka(backend, tmp_path) as side:
            for name in TOPICS & side.store.topics.all().keys():
                await side.store.topics.delete(name)
        yield partial(kafka, backend)


@pytest.fixture
async def side(open_side: OpenSide, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Side]:
    """A side without topics."""
    async with open_side(tmp_path) as side:
        yield side
