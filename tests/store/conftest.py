"""The sides of the store's port: what implements it, opened for a test."""

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.limits.executors import Workers
from app.settings import Settings
from app.store.local.store import LocalStore
from app.store.port import Partition, Store
from engine.clock import SystemClock
from engine.fs.filesystem import PosixFileSystem
from engine.metrics import NullRecorder


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


OpenSide = Callable[[Path], AbstractAsyncContextManager[Side]]

SIDES: dict[str, OpenSide] = {"local": local}
"""Every test here runs with each of them."""


@pytest.fixture(params=SIDES)
def open_side(request: pytest.FixtureRequest) -> OpenSide:
    """What opens a side on a directory; opened there again, it has what was durable."""
    return SIDES[request.param]


@pytest.fixture
async def side(open_side: OpenSide, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Side]:
    """A side without topics."""
    async with open_side(tmp_path) as side:
        yield side
