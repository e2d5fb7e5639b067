"""One open service a test: for requests with a topic `events` of one partition, or for bytes."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from app.operations.service import Service
from engine.records.codecs.zstd import zstd
from tests.support.receiver import Receiver, receiving
from tests.support.service import Api, open_service, running


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    async with running(tmp_path) as api:
        await api.create(retention_ms="-1")  # the times of tests are of any year
        yield api


@pytest.fixture
async def receiver(anyio_backend: str) -> AsyncIterator[Receiver]:
    """A server on this machine that takes what subscriptions push."""
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def service(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Service]:
    """An open service with a short body timeout, that only flushes on request."""
    async with open_service(tmp_path, body_timeout_ms=20, commit_interval_ms=600_000) as service:
        yield service


@pytest.fixture
def decoding(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Have something called each time a piece of zstd is decoded."""
    real = zstd.ZstdDecompressor

    def watch(look: Callable[[], None]) -> None:
        class Decompressor:
            def __init__(self, **options: Any) -> None:  # as the library's
                self._real = real(**options)

            def decompress(self, data: Any, max_length: int) -> bytes:  # as above
                look()
                return self._real.decompress(data, max_length)

            def __getattr__(self, name: str) -> Any:  # as above
                return getattr(self._real, name)

        monkeypatch.setattr(zstd, "ZstdDecompressor", Decompressor)

    return watch


@pytest.fixture
async def spread(api: Api) -> Api:
    """A service with a topic of three partitions."""
    await api.create("spread", partitions=3)
    return api


@pytest.fixture
async def patient(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """The same, with a service that only flushes on request."""
    async with running(tmp_path, commit_interval_ms=600_000) as api:
        await api.create("spread", partitions=3)
        yield api
