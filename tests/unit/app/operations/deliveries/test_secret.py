"""The secret that keys the digests of delivery ids."""

import asyncio
from pathlib import Path

import pytest

from app.operations.deliveries.deliveries import delivery_secret
from engine.errors import CorruptCheckpoint
from tests.support.service import running

pytestmark = pytest.mark.anyio


async def test_it_is_made_once(tmp_path: Path) -> None:
    """Two requests at the same time, and a restart, get the same 32 bytes."""
    lock = asyncio.Lock()
    async with running(tmp_path) as api:
        documents = api.service.store.documents
        wanted = [delivery_secret(documents, lock) for _ in range(2)]
        first, second = await asyncio.gather(*wanted)
        assert (first, len(first)) == (second, 32)
    async with running(tmp_path) as api:
        assert await delivery_secret(api.service.store.documents, lock) == first


@pytest.mark.parametrize("document", [{}, {"secret": "00"}, {"secret": "xy" * 32}, {"secret": 1}])
async def test_another_document_is_damage(tmp_path: Path, document: dict[str, object]) -> None:
    """A wrong secret would forget every delivery without a word."""
    async with running(tmp_path) as api:
        documents = api.service.store.documents
        await documents.change({"deliveries": document})
        with pytest.raises(CorruptCheckpoint, match="32 bytes in hex"):
            await delivery_secret(documents, asyncio.Lock())
