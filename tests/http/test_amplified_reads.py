"""A few stored KB that decode to megabytes.

Responses keep their limits, and continue inside a batch.
"""

import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from app.operations.service import Service
from engine.records.header import Codec
from tests.support.builders import values_of
from tests.support.events import tailing
from tests.support.service import BATCHES, RAW, RECORDS, Api, running
from tests.support.turnstile import Turnstile, hang_up_meanwhile
from tests.support.wire import Listener, request
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

MIB = 1 << 20
COUNT = 1_000
BOMB = bytes(values_of([b'"%b"' % (b"x" * 2_000)] * COUNT, codec=Codec.ZSTD))
"""A few KB that are 2 MB of records."""

LIMIT = 100_000
LIMITS: dict[str, Any] = {"max_answer_bytes": LIMIT, "max_tail_event_bytes": 30_000}
"""Of a service whose answers are small."""


def rows_of(body: bytes) -> list[dict[str, Any]]:
    with pa.ipc.open_stream(body) as stream:
        rows: list[dict[str, Any]] = stream.read_all().to_pylist()
    return rows


MEDIA: dict[str, tuple[str, Callable[[bytes], list[dict[str, Any]]]]] = {
    "json": ("application/json", lambda body: json.loads(body)["records"]),
    "ndjson": ("application/x-ndjson", lambda body: list(map(json.loads, body.splitlines()))),
    "arrow": ("application/vnd.apache.arrow.stream", rows_of),
}
V2 = "application/vnd.kafka.binary.v2+json"


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service with the bomb in its log."""
    async with running(tmp_path, **LIMITS) as api:
        await api.create()
        answer = await api.client.post(BATCHES, content=BOMB, headers=RAW)
        assert answer.status_code == 201, answer.text
        assert len(BOMB) < 10_000
        yield api


def clients(service: Service) -> dict[str, httpx.AsyncClient]:
    return {
        "hot": wired(service),
        "fastapi": wired(service, is_hot=False),
    }


@pytest.mark.parametrize("media", MEDIA)
async def test_every_page_keeps_its_limit_and_the_next_goes_on_inside_the_batch(
    api: Api, media: str
) -> None:
    """Each record comes once, in pages of `max_answer_bytes` at most, on every lane (R7)."""
    accept, records_of = MEDIA[media]
    for lane, client in clients(api.service).items():
        offset, seen, pages = 0, [], 0
        while offset < COUNT:
            url = f"{RECORDS}?offset={offset}"
            answer = await client.get(url, headers={"accept": accept})
            assert answer.status_code == 200, (lane, answer.text)
            assert len(answer.content) <= LIMIT
            seen += [record["offset"] for record in records_of(answer.content)]
            offset = int(answer.headers["log-next-offset"])
            pages += 1
        assert seen == list(range(COUNT)), lane
        assert 2_000 * COUNT / LIMIT <= pages < 1.2 * 2_000 * COUNT / LIMIT


async def test_links_lead_through_a_batch(api: Api) -> None:
    """A page that a limit of the service ends is not cacheable: the limit may change.

    `rel="next"` continues there, and the last page, which its URL bounds, is cacheable (R11).
    """
    url, count = f"{RECORDS}?offset=0&end_offset={COUNT}&log_id={api.log().reader.log_id}", 0
    while url:
        answer = await api.client.get(url)
        assert ("etag" in answer.headers) is ("next" not in answer.links)
        assert len(answer.content) <= LIMIT
        count += len(answer.json()["records"])
        url = answer.links["next"]["url"] if "next" in answer.links else ""
    assert count == COUNT


async def test_a_proxy_client_is_given_pieces_as_well(api: Api) -> None:
    """The array of REST v2 ends before what does not fit; the header has the next offset."""
    offset, seen = 0, []
    while offset < COUNT:
        path = f"/topics/events/partitions/0/records?offset={offset}"
        answer = await api.client.get(path, headers={"accept": V2})
        assert len(answer.content) <= LIMIT
        seen += [record["offset"] for record in answer.json()]
        offset = int(answer.headers["log-next-offset"])
    assert seen == list(range(COUNT))


async def test_a_fetch_of_several_partitions_keeps_the_limit_for_all(tmp_path: Path) -> None:
    """Bombs in three partitions: one answer, one limit, and all that was left comes later (F2)."""
    async with running(tmp_path, **LIMITS) as api:
        await api.create(partitions=3)
        at = [0, 0, 0]
        for partition in range(3):
            path = BATCHES.replace("/0/", f"/{partition}/")
            assert (await api.client.post(path, content=BOMB, headers=RAW)).status_code == 201
        while at != [COUNT] * 3:
            wanted = [
                {"topic": "events", "partition": n, "offset": offset} for n, offset in enumerate(at)
            ]
            answer = await api.client.post("/v1/fetch", json={"partitions": wanted})
            assert len(answer.content) <= LIMIT
            entries = answer.json()["partitions"]
            assert sum(len(entry["records"]) for entry in entries) > 0
            for n, entry in enumerate(entries):
                assert [r["offset"] for r in entry["records"]] == list(
                    range(at[n], entry["next_offset"])
                )
                at[n] = entry["next_offset"]


async def test_the_events_of_a_tail_keep_their_limit(api: Api) -> None:
    """A tail that begins before the bomb sends it in many events, each with its id (W5)."""
    async with tailing(api) as tail:
        await tail.next()
        offset = 0
        while offset < COUNT:
            event = await tail.next()
            assert [r["offset"] for r in event.data["records"]] == list(range(offset, event.offset))
            assert len(json.dumps(event.data, separators=(",", ":"))) <= 30_000
            offset = event.offset


async def test_a_record_that_no_answer_can_show_does_not_stall_its_readers(api: Api) -> None:
    """413 names its offset and the next one; the stored batch can still be read (R16)."""
    large = bytes(values_of([b'"y"', bytes(MIB), b'"z"'], codec=Codec.ZSTD))
    receipt = (await api.client.post(BATCHES, content=large, headers=RAW)).json()
    place = receipt["base_offset"] + 1
    before = await api.client.get(f"{RECORDS}?offset={place - 1}")
    assert (len(before.json()["records"]), before.json()["next_offset"]) == (1, place)
    for lane, client in clients(api.service).items():
        for accept, _ in MEDIA.values():
            answer = await client.get(f"{RECORDS}?offset={place}", headers={"accept": accept})
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (413, "too_large"), lane
            assert (problem["limit"], problem["offset"]) == ("max_answer_bytes", place)
            assert problem["actual_bytes"] > problem["limit_bytes"] == LIMIT
            assert "readBatches" in problem["detail"]
            after = await client.get(f"{RECORDS}?offset={problem['next_offset']}")
            assert [r["value"] for r in after.json()["records"]] == ["z"]
    stored = await api.client.get(f"{BATCHES}?offset={place}")
    assert stored.content[61:] == large[61:]
    proxy = f"/topics/events/partitions/0/records?offset={place}"
    assert (await api.client.get(proxy, headers={"accept": V2})).status_code == 413
    wanted = {"partitions": [{"topic": "events", "partition": 0, "offset": place}]}
    [entry] = (await api.client.post("/v1/fetch", json=wanted)).json()["partitions"]
    assert (entry["outcome"], entry["problem"]["offset"]) == ("failed", place)


async def test_a_tail_shows_a_record_alone_and_ends_at_one_that_is_too_large(api: Api) -> None:
    """A record may be larger than an event; beyond `max_answer_bytes` the tail ends there (W4)."""
    values = [b'"a"', b'"%b"' % (b"b" * 50_000), b'"c"', bytes(MIB)]
    large = bytes(values_of(values, codec=Codec.ZSTD))
    assert (await api.client.post(BATCHES, content=large, headers=RAW)).status_code == 201
    async with tailing(api, f"offset={COUNT}") as tail:
        _, *shown, end = await tail.read(5)
        assert [event.values for event in shown] == [["a"], ["b" * 50_000], ["c"]]
        assert (end.name, end.data["reason"]) == ("end", "too_large")
        assert (end.data["retryable"], end.data["next_offset"]) == (False, COUNT + 3)
        assert end.data["problem"]["next_offset"] == COUNT + 4


async def test_an_answer_that_grew_is_counted_before_it_is_sent(tmp_path: Path) -> None:
    """A few stored KB that became a large answer find no room where others hold it: 503 (E6)."""
    async with running(tmp_path, max_in_flight_answer_bytes=2 * MIB, **LIMITS) as api:
        await api.create()
        await api.client.post(BATCHES, content=BOMB, headers=RAW)
        other = api.service.admission.admit("other")
        other.hold_answer(2 * MIB - 50_000)
        small = {"max_bytes": "1", "offset": "0"}
        paths = [RECORDS, "/topics/events/partitions/0/records"]
        for path in paths:
            headers = {"accept": V2} if path.startswith("/topics") else {}
            answer = await api.client.get(path, params=small, headers=headers)
            assert answer.status_code == 503, answer.text
        wanted = {"partitions": [{"topic": "events", "partition": 0}], "max_bytes": 1}
        refused = await api.client.post("/v1/fetch", json=wanted)
        assert (refused.status_code, refused.json()["side_effects"]) == (503, "none")
        other.close()
        assert (await api.client.get(RECORDS, params=small)).status_code == 200
        assert api.service.admission.answer_bytes == 0


async def test_no_bomb_is_decompressed_on_the_event_loop(
    api: Api, decoding: Callable[[Callable[[], None]], None]
) -> None:
    """However few stored bytes a read, a fetch or a tail finds (R17)."""
    threads = set()
    decoding(lambda: threads.add(threading.current_thread()))
    for client in clients(api.service).values():
        assert (await client.get(f"{RECORDS}?max_records=1")).status_code == 200
    wanted = {"partitions": [{"topic": "events", "partition": 0}]}
    assert (await api.client.post("/v1/fetch", json=wanted)).status_code == 200
    path = "/topics/events/partitions/0/records?offset=0"
    assert (await api.client.get(path, headers={"accept": V2})).status_code == 200
    async with tailing(api) as tail:
        await tail.read(2)
    assert len(threads) > 0
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("lane", ["hot", "fastapi"])
async def test_nothing_more_is_decoded_for_a_reader_that_has_gone(
    tmp_path: Path, decoding: Callable[[Callable[[], None]], None], lane: str
) -> None:
    """The reader's thread is free again after the present piece (R17)."""
    turnstile = Turnstile()
    async with running(tmp_path) as api:
        await api.create()
        bomb = bytes(values_of([b'"%b"' % (b"x" * 60)] * 500_000, codec=Codec.ZSTD))
        assert (await api.client.post(BATCHES, content=bomb, headers=RAW)).status_code == 201
        decoding(turnstile.enter)
        connection = Listener(api.service).connect()
        path = RECORDS.replace("events", "%65vents") if lane == "fastapi" else RECORDS
        connection.send(request("GET", f"{path}?offset=499999"))
        await hang_up_meanwhile(api.service, connection, turnstile)
        assert turnstile.passed == 2


async def test_a_page_that_time_has_ended_is_not_kept(tmp_path: Path) -> None:
    """It may end elsewhere another time: no tag, no cache, and the next page continues (R11)."""
    async with running(tmp_path, max_decode_cpu_ms=1, max_answer_bytes=100 * MIB) as api:
        await api.create()
        bomb = bytes(values_of([b'"%b"' % (b"x" * 2_000)] * 30_000, codec=Codec.ZSTD))
        assert (await api.client.post(BATCHES, content=bomb * 1, headers=RAW)).status_code == 413
        api.log().append(bytearray(bomb))
        api.log().durability.commit()
        offset, pages = 0, 0
        while offset < 30_000:
            url = f"{RECORDS}?offset={offset}&end_offset=30000&log_id={api.log().reader.log_id}"
            answer = await api.client.get(url, headers={"accept": "application/x-ndjson"})
            next_offset = int(answer.headers["log-next-offset"])
            assert next_offset > offset, "a reader never stalls"
            if next_offset < 30_000:
                assert answer.headers["cache-control"] == "no-store"
                assert "etag" not in answer.headers
            offset, pages = next_offset, pages + 1
        assert pages > 3
