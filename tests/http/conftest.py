"""One open service a test: for requests with a topic `events` of one partition, or for bytes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.operations.service import Service
from tests.support.service import Api, open_service, running


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    async with running(tmp_path) as api:
        await api.create(retention_ms="-1")  # the times of tests are of any year
        yield api


@pytest.fixture
async def service(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Service]:
    """An open service that waits for no body for long, and for the disk only when asked to."""
    async with open_service(tmp_path, body_timeout_ms=20, commit_interval_ms=600_000) as service:
        yield service
