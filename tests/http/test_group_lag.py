"""A group's lag in time: protocol rule G6."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.codecs import stored
from app.operations import group_lag
from app.operations.group_lag import LOOKED_AT_TOGETHER
from engine.errors import StoredDataCorrupt
from engine.records.builder import build_batch
from engine.records.header import HEADER_BYTES, Codec
from schemas.groups import GroupLag, GroupLagList
from tests.support.credentials import bearer, create_key
from tests.support.service import BATCHES, RAW, Api, open_service, running
from tests.support.time import START_MS, ManualClock
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

LAG = "/v1/groups/lake/lag"


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def api(tmp_path: Path, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Api]:
    """A service whose clock the test sets, with a topic of two partitions."""
    async with (
        open_service(tmp_path, clock=clock, offsets_topic_partitions=1) as service,
        wired(service) as client,
    ):
        api = Api(service, client)
        await api.create(partitions=2, retention_ms="-1")
        yield api


async def at(api: Api, offset: int, partition: int = 0) -> None:
    """Store an offset of the group."""
    url = f"/v1/groups/lake/offsets/events/{partition}"
    assert (await api.client.put(url, json={"offset": offset})).status_code in {200, 201}


async def test_a_group_with_many_offsets_has_a_lag_in_each(api: Api) -> None:
    """Between some of them other requests have their turn."""
    await api.client.patch("/v1/topics/events", json={"partitions": LOOKED_AT_TOGETHER + 1})
    for partition in range(LOOKED_AT_TOGETHER + 1):
        await at(api, 0, partition)
    assert len(await lags(api)) == LOOKED_AT_TOGETHER + 1


async def lags(api: Api, query: str = "") -> list[int | None]:
    answer = await api.client.get(f"{LAG}{query}")
    found = GroupLag.model_validate(answer.json())
    ages = [one.lag_ms for one in found.partitions]
    assert found.max_lag_ms == max((age for age in ages if age is not None), default=None)
    return ages


async def send(api: Api, *times_ms: int, codec: Codec = Codec.NONE) -> None:
    """Append records of these times in one batch."""
    records = [(START_MS + time_ms, None, b"1", ()) for time_ms in times_ms]
    batch = build_batch(records, codec=codec)
    answer = await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_it_is_the_age_of_the_oldest_record_not_yet_read(
    api: Api, clock: ManualClock, codec: Codec
) -> None:
    """Of that very record, also inside a batch; null for a partition with nothing left (G6)."""
    await send(api, -9_000, -5_000, -7_000, codec=codec)
    await at(api, 0)
    await at(api, 0, partition=1)
    now_ms = clock.now_ms() - START_MS
    assert await lags(api) == [9_000 + now_ms, None]
    await at(api, 1)
    assert await lags(api) == [5_000 + now_ms, None]
    clock.advance(1_000)
    assert await lags(api) == [6_000 + now_ms, None]
    await at(api, 3)
    assert await lags(api) == [None, None]


async def test_a_large_compressed_batch_is_decoded_on_a_worker(api: Api) -> None:
    """Only as far as the record that is looked for, within the decoding budget."""
    await send(api, *range(-5_000, 0), codec=Codec.GZIP)
    await at(api, 4_000)
    (age, *_) = await lags(api)
    assert age is not None
    assert age >= 1_000


async def test_removed_records_do_not_count(api: Api) -> None:
    """Deleted unread records count as missed; the age is that of the first remaining one."""
    await send(api, -9_000)
    await send(api, -3_000)
    await at(api, 0)
    (before,) = await lags(api)
    url = "/v1/topics/events/partitions/0/delete-records"
    await api.client.post(url, json={"before_offset": 1})
    (after,) = await lags(api)
    assert before is not None
    assert after == before - 6_000


async def test_a_record_of_the_future_or_without_a_time_has_no_age(api: Api) -> None:
    """The age is never negative; -1 means no timestamp."""
    await send(api, 50_000)
    await at(api, 0)
    assert await lags(api) == [0]
    await send(api, -1 - START_MS)
    await at(api, 1)
    assert await lags(api) == [None]


async def test_damage_leaves_the_lag_in_offsets(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age is unknown then, the number of records is not."""
    await send(api, -1_000)
    await at(api, 0)

    def damaged(_: object) -> None:
        raise StoredDataCorrupt("damaged", file="", position=0, offset=0)

    monkeypatch.setattr(stored, "iter_headers", damaged)
    answer = (await api.client.get(LAG)).json()
    assert (answer["total_lag"], answer["max_lag_ms"]) == (1, None)


async def test_ages_end_with_the_decoding_budget(tmp_path: Path) -> None:
    """One request decodes `max_decoded_bytes` at most; the lags in offsets are complete."""
    records = [(START_MS, None, b"%d" % number, ()) for number in range(5_000)]
    content_bytes = len(build_batch(records)) - HEADER_BYTES
    async with (
        open_service(
            tmp_path,
            clock=ManualClock(),
            offsets_topic_partitions=1,
            max_decoded_bytes=content_bytes,
            max_decompressed_batch_bytes=content_bytes,
        ) as service,
        wired(service) as client,
    ):
        api = Api(service, client)
        await api.create(partitions=2)
        for partition in range(2):
            url = BATCHES.replace("partitions/0", f"partitions/{partition}")
            batch = bytes(build_batch(records, codec=Codec.GZIP))
            assert (await client.post(url, content=batch, headers=RAW)).status_code == 201
            await at(api, 4_999, partition)
        assert await lags(api) == [0, None]
        assert (await client.get(LAG)).json()["total_lag"] == 2


async def test_a_lag_of_markers_alone_has_no_age(api: Api) -> None:
    """The end of a transaction is an offset and no record: it has nothing that could be old."""
    batch = build_batch(
        [(START_MS, None, b"1", ())],
        base_sequence=0,
        is_transactional=True,
        producer_id=5,
        producer_epoch=0,
    )
    assert (await api.client.post(BATCHES, content=bytes(batch), headers=RAW)).status_code == 201
    end = {"producer_id": 5, "producer_epoch": 0, "action": "commit"}
    url = "/v1/topics/events/partitions/0/transactions"
    assert (await api.client.post(url, json=end)).status_code == 200
    await at(api, 1)
    assert (await api.client.get(LAG)).json()["total_lag"] == 1
    assert await lags(api) == [None]


async def ranked(api: Api, query: str = "") -> list[tuple[str, int, int | None]]:
    answer = await api.client.get(f"/v1/group-lags{query}")
    found = GroupLagList.model_validate(answer.json())
    return [(one.group, one.total_lag, one.max_lag_ms) for one in found.groups]


async def stand(api: Api, group: str, *offsets: int, topic: str = "events") -> None:
    """Store a group's offsets, of partition 0 on."""
    for number, offset in enumerate(offsets):
        url = f"/v1/groups/{group}/offsets/{topic}/{number}"
        assert (await api.client.put(url, json={"offset": offset})).status_code == 201


async def test_groups_are_listed_by_their_lag(api: Api, clock: ManualClock) -> None:
    """The greatest sum first, then by name; the age is that of the oldest record unread."""
    for number, count in enumerate((4, 2)):
        body = {"records": [{"value": n, "timestamp": START_MS} for n in range(count)]}
        path = f"/v1/topics/events/partitions/{number}/records"
        (await api.client.post(path, json=body)).raise_for_status()
    clock.advance(5_000)
    await stand(api, "done", 4, 2)
    await stand(api, "b-late", 3, 1)
    await stand(api, "a-late", 2)
    await stand(api, "Worst", 0, 0)
    age = clock.now_ms() - START_MS
    everyone = [("Worst", 6, age), ("a-late", 2, age), ("b-late", 2, age), ("done", 0, None)]
    assert await ranked(api) == everyone
    assert await ranked(api, "?limit=1") == everyone[:1]
    assert await ranked(api, "?search=LATE") == everyone[1:3]
    answer = await api.client.get("/v1/group-lags", params={"limit": 1, "search": "e"})
    assert answer.json()["groups_count"] == 3
    first = answer.json()["groups"][0]
    assert (first["partitions"], first["topics"], first["missed"]) == (1, ["events"], 0)


async def test_groups_of_a_topic_are_listed_apart(api: Api) -> None:
    """Only their offsets in it count; a topic without any has none."""
    await api.create("other", retention_ms="-1")
    await api.append(1, path="/v1/topics/other/partitions/0/records")
    await api.append(1, 2)
    await stand(api, "both", 0)
    await stand(api, "both", 0, topic="other")
    await stand(api, "one", 1)
    assert [one[:2] for one in await ranked(api)] == [("both", 3), ("one", 1)]
    assert [one[:2] for one in await ranked(api, "?topic=other")] == [("both", 1)]
    absent = await api.client.get("/v1/group-lags?topic=absent")
    assert (absent.status_code, absent.json()["code"]) == (404, "topic_not_found")


async def test_a_reader_sees_the_groups_of_its_topics(tmp_path: Path) -> None:
    """And of a group with offsets in others only the lag in its own."""
    data = tmp_path / "data"
    admin = create_key(data, "admin", "read:*", "admin:*")
    reader = create_key(data, "reader", "read:mine")
    async with running(data) as api:
        for topic in ("mine", "theirs"):
            url = f"/v1/topics/{topic}"
            await api.client.put(url, json={}, headers=bearer(admin))
            offset = f"/v1/groups/g-{topic}/offsets/{topic}/0"
            await api.client.put(offset, json={"offset": 0}, headers=bearer(admin))
        answer = await api.client.get("/v1/group-lags", headers=bearer(reader))
        assert [one["group"] for one in answer.json()["groups"]] == ["g-mine"]
        refused = await api.client.get("/v1/group-lags?topic=theirs", headers=bearer(reader))
        assert refused.status_code == 403


async def test_many_offsets_are_compared_in_several_turns(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests have their turn between them, and the result is the same."""
    monkeypatch.setattr(group_lag, "LISTED_TOGETHER", 1)
    monkeypatch.setattr(group_lag, "LOOKED_AT_TOGETHER", 1)
    await api.append(1, 2, 3)
    await stand(api, "g", 1, 0)
    assert [one[:2] for one in await ranked(api)] == [("g", 2)]
