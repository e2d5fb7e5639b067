"""The service in this process: a real data directory, and no sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.http.answers import App
from app.operations.service import Service, local_store
from app.settings import Settings
from app.store.local.store import LocalStore
from engine.clock import Clock
from engine.fs.port import FileSystem
from engine.log.log import Log
from engine.types import TopicPartition
from tests.support.builders import DATA, SMALL_INDEXES, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.wired_client import wired

RECORDS = "/v1/topics/events/partitions/0/records"
BATCHES = "/v1/topics/events/partitions/0/batches"
OFFSETS = "/v1/topics/events/partitions/0/offsets"
BACKEND: dict[str, Any] = {}
"""Where the logs are, if not in this process: `tests.kafka.on_cluster` sets it."""
NDJSON = {"content-type": "application/x-ndjson"}
RAW = {"content-type": "application/vnd.kafka.recordbatch.v2"}


@dataclass
class Api:
    """A service that is open, and a client for it."""

    service: Service
    client: httpx.AsyncClient

    def log(self, topic: str = "events", partition: int = 0) -> Log:
        return log_of(self.service, topic, partition)

    @property
    def local(self) -> LocalStore:
        return local(self.service)

    async def create(self, topic: str = "events", partitions: int = 1, **config: object) -> None:
        """Create a topic; `retention_ms=-1` means `retention.ms`."""
        wanted = {name.replace("_", "."): value for name, value in config.items()}
        body = {"partitions": partitions, "config": wanted}
        answer = await self.client.put(f"/v1/topics/{topic}", json=body)
        assert answer.status_code == 201, answer.text

    async def append(self, *values: object, path: str = RECORDS, **more: object) -> dict[str, Any]:
        """Append one record a value, on disk when this returns."""
        records = [{"value": value, **more} for value in values]
        answer = await self.client.post(path, json={"records": records})
        assert answer.status_code == 201, answer.text
        receipt: dict[str, Any] = answer.json()
        return receipt


def local(service: Service) -> LocalStore:
    """The store of a service on the engine in this process."""
    return local_store(service.store)


def log_of(service: Service, topic: str = "events", partition: int = 0) -> Log:
    """The log of a partition of such a service."""
    return local(service).manager.log(TopicPartition(topic, partition))


def client_of(app: App) -> httpx.AsyncClient:
    """A client that calls the application; what a server would answer 500 is answered 500."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


@asynccontextmanager
async def open_service(
    directory: Path,
    *,
    clock: Clock | None = None,
    fs: FileSystem | None = None,
    **settings: Any,
) -> AsyncIterator[Service]:
    """A service with its logs open, closed at the end."""
    settings = {"min_segment_bytes": 14, **BACKEND, **settings}
    service = Service(Settings(data_directory=directory, **settings), clock=clock, fs=fs)
    await service.open()
    try:
        yield service
    finally:
        await service.close()


@asynccontextmanager
async def open_in_memory(**settings: Any) -> AsyncIterator[Service]:
    """An open service on a disk in memory, whose answers above 4 KiB are made by workers."""
    disk = with_data(ForgetfulDisk())  # what is cached is up to the test
    async with open_service(
        DATA,
        fs=disk,
        default_topic_config=dict(SMALL_INDEXES),
        inline_read_bytes=4096,
        tail_heartbeat_ms=600_000,
        **settings,
    ) as service:
        yield service


@asynccontextmanager
async def running(directory: Path, **settings: Any) -> AsyncIterator[Api]:
    """An open service and a client in one step."""
    async with open_service(directory, **settings) as service, wired(service) as client:
        yield Api(service, client)
