"""One open service a test, with a topic `events` of one partition."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.service import Api, running


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    async with running(tmp_path) as api:
        await api.create()
        yield api
