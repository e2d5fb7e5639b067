"""Deliveries that other services write are remembered: the logs are followed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anyio.lowlevel import checkpoint

from app.codecs.delivery_headers import STATE_HEADER, Seal, State
from app.operations.deliveries import rebuild
from app.operations.deliveries.rebuild import LogFollower
from app.operations.deliveries.table import DeliveryTable, TopicMemory
from engine.records.builder import build_batch
from engine.records.checksum import crc32c
from engine.records.header import ATTRIBUTES_POSITION, CRC_POSITION, Codec
from tests.support.fake_kafka import eventually, fake_kafka
from tests.support.kafka_store import hurry
from tests.support.service import RAW, Api, running
from tests.support.time import START_MS

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    async with running(tmp_path) as api:
        await api.create(partitions=2)
        yield api


def memory_of(api: Api) -> TopicMemory:
    topic_id = api.service.topic("events").topic_id
    memory = TopicMemory("events", topic_id)
    memory.publish(DeliveryTable(), {})
    return memory


def follower_of(api: Api, memory: TopicMemory) -> LogFollower:
    return LogFollower(
        memory,
        partitions=api.service,
        watch=api.service.tail.watch,
        run=api.service.workers.read,
        max_batch_bytes=1 << 20,
        secret=b"secret",
        on_found=lambda: None,
    )


async def write(api: Api, number: int, partition: int = 0) -> None:
    """Append a delivery as another service would."""
    state = State(bytes([number]) * 16, bytes(8), START_MS, 1, 0)
    sealed = state.pack(Seal(b"secret", api.service.topic("events").topic_id), None, b"x")
    batch = build_batch([(START_MS, None, b"x", [(STATE_HEADER, sealed)])])
    path = f"/v1/topics/events/partitions/{partition}/batches"
    answer = await api.client.post(path, content=bytes(batch), headers=RAW)
    assert answer.status_code == 201


async def remembered(memory: TopicMemory, count: int) -> None:
    """Wait until so many deliveries are in memory."""
    async with asyncio.timeout(30):
        while memory.table is None or len(memory.table) < count:
            await checkpoint()


@contextlib.asynccontextmanager
async def following(follower: LogFollower) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(follower.run())
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_what_is_written_is_remembered(api: Api) -> None:
    """Before it began and while it waits, in every partition, each once."""
    memory = memory_of(api)
    await write(api, 1)
    async with following(follower_of(api, memory)):
        await remembered(memory, 1)
        await write(api, 2, partition=1)
        await remembered(memory, 2)
        await write(api, 3)
        await remembered(memory, 3)
    assert memory.positions == {0: 2, 1: 1}


async def test_partitions_that_are_added_are_followed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked for now and then."""
    monkeypatch.setattr(rebuild, "LOOK_SECONDS", 0.01)
    memory = memory_of(api)
    async with following(follower_of(api, memory)):
        await api.service.topics.update("events", {}, 3)
        await write(api, 1, partition=2)
        await remembered(memory, 1)


async def test_it_ends_with_its_topic(api: Api) -> None:
    """A topic of the same name is another one."""
    memory = memory_of(api)
    async with following(follower_of(api, memory)) as task:
        await checkpoint()
        assert (await api.client.delete("/v1/topics/events")).status_code == 204
        await task
    await api.create()
    async with following(follower_of(api, memory)) as task:
        await task


async def test_a_log_that_cannot_be_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its leader is gone for a while."""
    hurry(monkeypatch)
    monkeypatch.setattr(rebuild, "RETRY_SECONDS", 0.001)
    async with (
        fake_kafka() as fake,
        running(tmp_path, kafka=fake.addresses, kafka_read_timeout_ms=300) as api,
    ):
        await api.create()
        await write(api, 1)
        (log,) = fake.topics["events"][1]
        log.leader = -1
        memory = memory_of(api)
        async with following(follower_of(api, memory)):
            await eventually(lambda: "deliveries to events-0: " in caplog.text)
            log.leader = 1
            await remembered(memory, 1)


async def test_a_gap_is_skipped(api: Api) -> None:
    """Deleted records are gone; a batch that cannot be decoded hides only itself."""
    memory = memory_of(api)
    await write(api, 1)
    await write(api, 2)
    deleted = await api.client.post(
        "/v1/topics/events/partitions/0/delete-records", json={"before_offset": 1}
    )
    assert deleted.status_code == 200
    async with following(follower_of(api, memory)):
        await remembered(memory, 1)
    assert memory.table is not None
    assert not memory.table.find(bytes([1]) * 16)


@pytest.mark.parametrize("is_intact", [False, True])
async def test_a_batch_that_cannot_be_read_ends_nothing(api: Api, *, is_intact: bool) -> None:
    """Neither a damaged one, nor one with a content that cannot be decoded."""
    memory = memory_of(api)
    damaged = bytearray(build_batch([(START_MS, None, b"x" * 100, [])], codec=Codec.ZSTD))
    damaged[-20:] = bytes(20)
    if is_intact:
        crc = crc32c(damaged[ATTRIBUTES_POSITION:])
        damaged[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    async with following(follower_of(api, memory)):
        api.log().append(damaged, checked=True)
        await write(api, 1)
        while memory.positions[0] == 0:
            await checkpoint()
        await write(api, 2)
        await remembered(memory, 1)
