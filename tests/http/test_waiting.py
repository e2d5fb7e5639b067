"""Long polls, tails and fetches look, ask whether the log has moved since, and then wait."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.server.process import compose
from engine.records.builder import build_batch
from tests.support.events import PATIENCE_S, listening, tailing
from tests.support.service import RECORDS, Api, running
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service with a topic `events`."""
    async with running(tmp_path) as api:
        await api.create(retention_ms="-1")
        yield api


async def hot_poll(api: Api) -> list[object]:
    answer = await api.client.get(RECORDS, params={"offset": 0, "max_wait_ms": 60_000})
    return [record["value"] for record in answer.json()["records"]]


async def poll(api: Api) -> list[object]:
    async with wired(api.service, is_hot=False) as client:
        return await hot_poll(Api(api.service, client))


async def fetch(api: Api) -> list[object]:
    wanted = {"partitions": [{"topic": "events", "partition": 0}], "max_wait_ms": 60_000}
    (entry,) = (await api.client.post("/v1/fetch", json=wanted)).json()["partitions"]
    return [record["value"] for record in entry["records"]]


async def tail(api: Api) -> list[object]:
    async with tailing(api) as events:
        return (await events.read(2))[1].values


async def topic_tail(api: Api) -> list[object]:
    async with listening(compose(api.service), "/v1/topics/events/tail") as events:
        return (await events.read(2))[1].values


@pytest.mark.parametrize("read", [hot_poll, poll, fetch, tail, topic_tail])
async def test_a_commit_between_look_and_wait_is_not_missed(
    api: Api, monkeypatch: pytest.MonkeyPatch, read: Callable[[Api], Awaitable[list[object]]]
) -> None:
    """Records committed right after the read are found without another commit."""
    log = api.log()
    real = log.reader.read

    def read_then_commit(*arguments: Any, **options: Any) -> object:
        found = real(*arguments, **options)
        if not log.watermarks.log_end_offset:
            log.append(build_batch([(1, None, b"1", ())]))
            log.durability.commit()  # no notification: the committer did not do it
        return found

    monkeypatch.setattr(log.reader, "read", read_then_commit)
    assert await asyncio.wait_for(read(api), PATIENCE_S) == [1]
