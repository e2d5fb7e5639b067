"""One long-lived fetch feeds all readers that wait at the end of a log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from anyio.lowlevel import checkpoint
from kio.schema.errors import ErrorCode

from app.store.kafka.log import KafkaLog
from app.store.kafka.read import followers
from app.store.kafka.read.page import Wanted
from engine.errors import TopicNotFound
from engine.types import FetchIsolation
from tests.support.builders import new_batch
from tests.support.fake_kafka import eventually
from tests.unit.app.store.kafka.conftest import Client

pytestmark = pytest.mark.anyio

WHOLE = 1 << 20
BATCH = bytes(new_batch(2))


class Readers:
    """Readers that follow a log as tails do: what a shared fetch brings, or on demand."""

    def __init__(
        self, client: Client, log: KafkaLog, isolation: FetchIsolation, max_bytes: int
    ) -> None:
        self._client, self._log = client, log
        self._isolation, self._max_bytes = isolation, max_bytes
        self.offsets: list[int] = []
        self.on_demand = 0

    async def follow(self) -> None:
        log, offset = self._log, self._log.marks.watermarks.bound(self._isolation).offset
        index = len(self.offsets)
        self.offsets.append(offset)
        with self._client.tail.watch((log,)) as watch:
            while True:
                await watch.wait()
                wanted = Wanted(offset, self._max_bytes, self._isolation, None, True)
                fetched = log.read_now(wanted)
                if fetched is None:
                    self.on_demand += 1
                    fetched = await log.read(wanted)
                offset = self.offsets[index] = fetched.next_offset

    async def reach(self, offset: int) -> None:
        """Wait until all of them are there."""
        await eventually(lambda: set(self.offsets) == {offset})


@asynccontextmanager
async def reading(
    client: Client,
    log: KafkaLog,
    count: int = 1,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    max_bytes: int = WHOLE,
) -> AsyncIterator[Readers]:
    readers = Readers(client, log, isolation, max_bytes)
    tasks = [asyncio.create_task(readers.follow()) for _ in range(count)]
    await eventually(lambda: client.tail.has_readers(log))
    yield readers
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def followed(client: Client, name: str = "events") -> KafkaLog:
    """A log whose offsets are known."""
    client.fake.create(name)
    log = await client.log(name)
    await log.refresh()
    return log


async def test_a_thousand_readers_cost_the_broker_as_much_as_one(client: Client) -> None:
    """One fetch for each commit, and one that waits."""
    log = await followed(client)
    (stored,) = client.fake.topics["events"][1]
    async with reading(client, log, count=1000) as readers:
        for commit in range(1, 6):
            client.fake.append(stored, BATCH)
            await readers.reach(2 * commit)
    assert readers.on_demand == 0
    assert client.fake.requests["Fetch"] <= 6


async def test_nothing_is_asked_for_without_readers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetch that waits when the last one leaves is the last one."""
    monkeypatch.setattr(followers, "FOLLOW_WAIT_MS", 20)
    log = await followed(client)
    async with reading(client, log):
        await eventually(lambda: client.fake.requests["Fetch"] > 1)
        await eventually(lambda: client.fake.waiting_fetches == 1)
    asked = client.fake.requests["Fetch"]
    await eventually(lambda: not client.fake.waiting_fetches)
    for _ in range(100):
        await checkpoint()
    assert client.fake.requests["Fetch"] == asked
    async with reading(client, log) as readers:
        client.fake.append(client.fake.topics["events"][1][0], BATCH)
        await readers.reach(2)


async def test_logs_of_one_broker_share_a_fetch(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that joins meanwhile has its own until the first one returns; more than lanes wait."""
    monkeypatch.setattr(followers, "FOLLOW_WAIT_MS", 100)
    logs = [await followed(client, f"t{number}") for number in range(7)]
    async with reading(client, logs[0]) as first, reading(client, logs[1]) as second:
        await eventually(lambda: client.fake.waiting_fetches > 0)
        for number, readers in enumerate((first, second)):
            client.fake.append(client.fake.topics[f"t{number}"][1][0], BATCH)
            await readers.reach(2)
        tasks = []
        for log in logs[2:]:
            readers = Readers(client, log, FetchIsolation.HIGH_WATERMARK, WHOLE)
            tasks.append((readers, asyncio.create_task(readers.follow())))
            await eventually(lambda: client.tail.has_readers(log))  # noqa: B023  # called here
        for number, (readers, task) in enumerate(tasks, start=2):
            client.fake.append(client.fake.topics[f"t{number}"][1][0], BATCH)
            await readers.reach(2)
            task.cancel()


async def test_readers_go_on_with_a_new_leader(client: Client) -> None:
    """Whatever the old one answers, and even if it does not."""
    log = await followed(client)
    (stored,) = client.fake.topics["events"][1]
    async with reading(client, log) as readers:
        await eventually(lambda: client.fake.waiting_fetches > 0)
        stored.leader, stored.epoch = 2, 1
        client.fake.errors["ListOffsets"].append(ErrorCode.offset_not_available)
        client.fake.append(stored, BATCH)
        await readers.reach(2)
        client.fake.closes["Fetch"] = 1
        client.fake.silent = {"Fetch"}
        client.fake.append(stored, BATCH)
        await readers.reach(4)
        stored.leader = 9  # there is none for a moment
        client.fake.errors["Fetch"].append(ErrorCode.not_leader_or_follower)
        client.fake.move()
        await client.cluster.refresh()
        asked = client.fake.requests["Metadata"]
        await eventually(lambda: client.fake.requests["Metadata"] > asked + 1)
        stored.leader, stored.epoch = 1, 2
        client.fake.append(stored, BATCH)
        await readers.reach(6)


async def test_readers_without_a_leader_wait_for_one(client: Client) -> None:
    """A long poll that begins then is woken later."""
    log = await followed(client)
    (stored,) = client.fake.topics["events"][1]
    stored.leader = 9
    await client.cluster.refresh()
    async with reading(client, log) as readers:
        asked = client.fake.requests["Metadata"]
        await eventually(lambda: client.fake.requests["Metadata"] > asked)
        stored.leader = 2
        stored.epoch = 1
        client.fake.append(stored, BATCH)
        await readers.reach(2)


async def test_readers_of_a_topic_that_is_gone_are_woken(client: Client) -> None:
    """They look, and find out."""
    log = await followed(client)
    with client.tail.watch((log,)) as watch:
        waiting = asyncio.create_task(watch.wait())
        await eventually(lambda: client.fake.waiting_fetches > 0)
        del client.fake.topics["events"]
        client.fake.move()
        await client.cluster.refresh()
        log.abandon(TopicNotFound("it was deleted"))
        async with asyncio.timeout(30):
            await waiting


async def test_a_response_that_is_cut_is_continued_on_demand(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that a bound of the reader ends is served from it."""
    monkeypatch.setattr(followers, "FOLLOW_BYTES", len(BATCH) + 5)
    log = await followed(client)
    (stored,) = client.fake.topics["events"][1]
    async with (
        reading(client, log) as whole,
        reading(client, log, max_bytes=len(BATCH)) as cut,
    ):
        await eventually(lambda: client.fake.waiting_fetches > 0)
        client.fake.append(stored, BATCH, BATCH)
        await whole.reach(4)
        assert whole.on_demand == 1
        await eventually(lambda: cut.offsets != [0])
        assert cut.on_demand == 0


async def test_committed_readers_ask_where_transactions_are(client: Client) -> None:
    """What has none is served from the shared fetch."""
    log = await followed(client)
    (stored,) = client.fake.topics["events"][1]
    isolation = FetchIsolation.TXN_COMMITTED
    async with reading(client, log, isolation=isolation) as readers:
        client.fake.append(stored, BATCH)
        await readers.reach(2)
        assert readers.on_demand == 0
        stored.last_stable_offset = 2
        options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        client.fake.append(stored, new_batch(1, is_transactional=True, **options))
        await eventually(lambda: readers.on_demand > 0)
        stored.last_stable_offset = None
        client.fake.append(stored, new_batch(1))
        await readers.reach(4)


async def test_a_reader_that_joins_asks_nothing(client: Client) -> None:
    """It stands where a fetch waits already; one that wants an answer now is not served so."""
    log = await followed(client)
    at_end = Wanted(0, WHOLE, FetchIsolation.HIGH_WATERMARK, None, minimum_one_batch=True)
    assert log.read_now(at_end, waits=True) is None
    async with reading(client, log) as readers:
        await eventually(lambda: client.fake.waiting_fetches == 1)
        assert log.read_now(at_end) is None
        assert log.read_now(at_end._replace(offset=1), waits=True) is None
        joined = log.read_now(at_end, waits=True)
        assert joined is not None
        assert (joined.next_offset, joined.watermarks) == (0, log.marks.watermarks)
        client.fake.append(client.fake.topics["events"][1][0], BATCH)
        await readers.reach(2)
        assert readers.on_demand == 0


async def test_moves_that_no_fetch_follows_wake_too(client: Client) -> None:
    """An append through this service shows the log's end; a follower brings it with the records."""
    log = await followed(client)
    log.marks.saw(high_watermark=0, last_stable_offset=0)
    client.fake.append(client.fake.topics["events"][1][0], BATCH)
    await log.refresh()
    assert client.moved == [log]
    async with reading(client, log):
        await eventually(lambda: client.fake.waiting_fetches > 0)
        log.marks.saw(high_watermark=3)
        assert client.moved == [log]
