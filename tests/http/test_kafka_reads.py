"""Reads, offsets, groups and deliveries of a service in front of a Kafka cluster in memory."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.operations.deliveries.deliveries import FOLLOW
from app.operations.read import tail
from app.server.process import compose
from app.store.kafka import cluster
from tests.support.events import TAIL, listening
from tests.support.fake_kafka import FakeKafka, eventually, fake_kafka
from tests.support.fake_log import FakeLog
from tests.support.kafka_store import hurry
from tests.support.service import BATCHES, NDJSON, OFFSETS, RECORDS, Api, running
from tests.support.wire import Listener, request
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/events"
CURSOR = "/v1/groups/lake/offsets/events/0"


@pytest.fixture
async def fake(anyio_backend: str) -> AsyncIterator[FakeKafka]:
    async with fake_kafka() as fake:
        yield fake


@pytest.fixture
async def api(fake: FakeKafka, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(tmp_path / "one", kafka=fake.addresses) as api:
        assert (await api.client.put(TOPIC, json={})).status_code == 201
        yield api


async def append(api: Api, key: str | None = None) -> Any:
    """Append a record; return the status and the receipt."""
    headers = NDJSON if key is None else NDJSON | {"idempotency-key": key}
    answer = await api.client.post(RECORDS, content=b'{"value":1}', headers=headers)
    return answer.status_code, answer.json()["base_offset"]


async def test_offsets_are_the_clusters_as_they_are_now(api: Api, fake: FakeKafka) -> None:
    """Without an ETag, on every way in; named offsets and group lag follow them."""
    await append(api)
    stored = fake.topics["events"][1][0]
    fake.append(stored, stored.batches[0])  # as another client
    hot = wired(api.service)
    for client in (hot, api.client):
        found = await client.get(OFFSETS)
        assert (found.json()["high_watermark"], "etag" in found.headers) == (2, False)
    at = await api.client.get(f"{TOPIC}/partitions/0/offset-at?timestamp=latest")
    assert (at.json()["offset"], "etag" in at.headers) == (2, False)
    # Before each of the following, or it could do with what the one before has learnt.
    fake.append(stored, stored.batches[0])
    latest = await hot.get(f"{RECORDS}?offset=latest")
    assert (latest.json()["records"], latest.json()["next_offset"]) == ([], 3)
    fake.append(stored, stored.batches[0])
    cut = await api.client.get(f"{RECORDS}?offset=0&end_offset=latest")
    assert len(cut.json()["records"]) == 4
    fake.append(stored, stored.batches[0])
    described = (await api.client.get(f"{TOPIC}/partitions")).json()["partitions"]
    assert (described[0]["high_watermark"], described[0]["segments"]) == (5, None)


async def test_immutable_pages_are_named_alike(api: Api, fake: FakeKafka, tmp_path: Path) -> None:
    """Every replica gives a page the same URL and ETag."""
    for _ in range(3):
        await append(api)
    first = await api.client.get(f"{BATCHES}?offset=0&max_bytes=1")
    url = first.headers["link"].partition(">")[0][1:]
    pages = [await api.client.get(url)]
    async with running(tmp_path / "two", kafka=fake.addresses) as other:
        pages.append(await other.client.get(url))
        assert (
            await other.client.get(url, headers={"if-none-match": pages[0].headers["etag"]})
        ).status_code == 304
    assert pages[0].headers["etag"] == pages[1].headers["etag"]
    assert pages[0].content == pages[1].content


async def test_what_a_cluster_cannot_do_is_refused(api: Api) -> None:
    """An explanation of a read, and conditions on group offsets."""
    refused = await api.client.get(f"{RECORDS}?offset=0&explain=1")
    assert (refused.status_code, refused.json()["code"]) == (501, "not_supported_by_backend")
    for method in ("PUT", "DELETE"):
        answer = await api.client.request(
            method, CURSOR, json={"offset": 0}, headers={"if-match": '"a"'}
        )
        assert (answer.status_code, answer.json()["code"]) == (501, "not_supported_by_backend")


async def test_group_offsets_have_no_etag(api: Api) -> None:
    """A GET with If-None-Match is answered in full."""
    await append(api)
    put = await api.client.put(CURSOR, json={"offset": "latest"})
    assert (put.status_code, put.json()["offset"], "etag" in put.headers) == (201, 1, False)
    found = await api.client.get(CURSOR, headers={"if-none-match": '"a"'})
    assert (found.status_code, found.json()["commit_timestamp"]) == (200, None)
    lag = (await api.client.get("/v1/groups/lake/lag")).json()
    assert lag["total_lag"] == 0
    assert (await api.client.delete(CURSOR)).status_code == 204


async def test_a_hot_read_of_a_lost_topic_is_explained(api: Api, fake: FakeKafka) -> None:
    """The offsets are asked for first, and there are none."""
    listener = Listener(api.service)
    connection = listener.connect()
    assert (await connection.ask(request("GET", OFFSETS))).status == 200
    del fake.topics["events"]
    await api.service.topics.look_for("events")
    await api.service.topics.look_for("events")
    assert (await connection.ask(request("GET", OFFSETS))).status == 404


async def test_a_delivery_is_stored_once_whichever_replica_it_reaches(
    api: Api, fake: FakeKafka, tmp_path: Path
) -> None:
    """Each reads what the other writes, elections do not matter, and its own is read once."""
    async with running(tmp_path / "two", kafka=fake.addresses) as other:
        assert await append(api, "a") == (201, 0)
        assert await append(other, "a") == (200, 0)
        assert await append(other, "b") == (201, 1)
        await eventually(lambda: api.service.deliveries.remembered == 2)
        assert await append(api, "b") == (200, 1)
        fake.topics["events"][1][0].epoch += 1
        assert await append(api, "c") == (201, 2)
        await eventually(lambda: other.service.deliveries.remembered == 3)
        assert await append(other, "c") == (200, 2)
        assert [one.service.deliveries.remembered for one in (api, other)] == [3, 3]
        assert (await api.client.delete(TOPIC)).status_code == 204
        following = {task.get_name() for task in asyncio.all_tasks()}
        assert FOLLOW in following
        async with asyncio.timeout(30):
            while FOLLOW in {task.get_name() for task in asyncio.all_tasks()}:
                await other.service.topics.look_for("events")


@pytest.mark.parametrize("path", [TAIL, f"{TOPIC}/tail"])
async def test_a_tail_outlives_an_outage(
    fake: FakeKafka, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells its client that it is alive, and goes on with the next record."""
    hurry(monkeypatch)
    monkeypatch.setattr(cluster, "LOST_SECONDS", 0.0)
    monkeypatch.setattr(tail, "OUTAGE_LOOK_SECONDS", 0.01)
    async with running(tmp_path, kafka=fake.addresses, tail_heartbeat_ms=10) as api:
        await api.client.put(TOPIC, json={})
        await append(api)
        async with listening(compose(api.service), path) as events:
            while (await events.next()).name != "records":
                pass
            await fake.stop(1)
            while api.service.store.failure() is None:
                assert (await events.next()).name == "offsets"
            refused = await api.client.get(f"{RECORDS}?offset=0")
            assert (refused.status_code, refused.json()["code"]) == (503, "backend_unavailable")
            assert "retry-after" in refused.headers
            assert [event.name for event in await events.read(3)] == ["offsets"] * 3
            await fake.start(1)
            await eventually(lambda: api.service.store.failure() is None)
            await append(api)
            while (event := await events.next()).name == "offsets":
                pass
            assert (event.name, event.values) == ("records", [1])


async def test_partitions_that_another_client_adds_end_a_tail(
    fake: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the metadata that has them, not with the next heartbeat (W8)."""
    hurry(monkeypatch)
    async with running(tmp_path, kafka=fake.addresses, tail_heartbeat_ms=3_600_000) as api:
        await api.client.put(TOPIC, json={})
        async with listening(compose(api.service), f"{TOPIC}/tail?offset=latest") as events:
            await events.next()
            await eventually(lambda: api.service.tail.waiting == 1)
            fake.topics["events"][1].append(FakeLog(1))
            async with asyncio.timeout(30):
                (end,) = await events.to_end()
    assert end.data["reason"] == "partitions_added"


async def test_a_long_poll_is_woken_by_another_client(api: Api, fake: FakeKafka) -> None:
    """Whichever way it came in."""
    await append(api)
    stored = fake.topics["events"][1][0]
    poll = f"{RECORDS}?offset=1&max_wait_ms=30000"
    waiting = [
        asyncio.ensure_future(client.get(poll)) for client in (wired(api.service), api.client)
    ]
    await eventually(lambda: api.service.tail.waiting == 2 and fake.waiting_fetches == 1)
    fake.append(stored, stored.batches[0])
    for answer in await asyncio.gather(*waiting):
        assert answer.json()["next_offset"] == 2


async def test_figures_that_brokers_do_not_tell_are_null(api: Api) -> None:
    """Sizes and newest records of topics; commits are the brokers' answers to produces."""
    api.service.history.look()
    await append(api)
    api.service.history.look()
    history = (await api.client.get("/v1/history")).json()
    assert history["points"][-1]["append_requests"] == 1
    assert history["points"][-1]["commit_p99_ms"] > 0
    totals = history["totals"]
    assert (totals["size_bytes"], totals["is_complete"], totals["partitions"]) == (None, True, 1)
    (listed,) = (await api.client.get("/v1/topics")).json()["topics"]
    assert (listed["size_bytes"], listed["newest_timestamp"]) == (None, None)
    await api.client.put(CURSOR, json={"offset": 0})
    lags = (await api.client.get("/v1/group-lags")).json()
    assert [(one["group"], one["total_lag"]) for one in lags["groups"]] == [("lake", 1)]
