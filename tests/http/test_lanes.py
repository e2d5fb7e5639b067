"""Hot requests and FastAPI's routes give the same answers, byte for byte."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import httpx
import pytest

from app.limits.admission import Phase
from app.operations.service import Service
from app.settings import Settings
from engine.errors import EngineError
from tests.support.builders import new_batch
from tests.support.credentials import bearer, create_key
from tests.support.service import (
    BATCHES,
    NDJSON,
    OFFSETS,
    RAW,
    RECORDS,
    local,
    open_service,
)
from tests.support.time import ManualClock
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/events/ingest"
EVENT = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/%C3%A9", "ce-type": '"a b"'}
TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
JSON = {"content-type": "application/json"}
PRODUCER = {"producer-id": "7", "producer-epoch": "0", "producer-sequence": "0"}
ONE = b'{"records":[{"key":"k","value":{"a":1}}]}'

# In sequence on one log: hot and usual, hot and odd, and hot and wrong requests.
REQUESTS: tuple[tuple[str, str, dict[str, str], bytes], ...] = (
    ("GET", OFFSETS, {}, b""),
    ("POST", RECORDS, JSON, ONE),
    ("POST", RECORDS, {}, ONE),
    ("POST", f"{RECORDS}?acks=all", JSON, ONE),
    ("POST", RECORDS, NDJSON, b'{"value":1}\n{"value":"two","key":null}\n'),
    ("POST", RECORDS, JSON | PRODUCER, ONE),
    ("POST", RECORDS, JSON | PRODUCER, ONE),
    ("POST", RECORDS, JSON | PRODUCER | {"producer-sequence": "5"}, ONE),
    ("POST", RECORDS, JSON | {"producer-id": "7"}, ONE),
    ("POST", RECORDS, JSON | {"expected-offset": "0"}, ONE),
    ("POST", RECORDS, JSON | {"if-match": "what"}, ONE),
    ("POST", RECORDS, JSON | {"content-digest": "sha-256=:AAAA:"}, ONE),
    ("POST", RECORDS, JSON | {"content-encoding": "br"}, ONE),
    ("POST", RECORDS, JSON, b"{"),
    ("POST", RECORDS, JSON, b'{"records":[{"value":1,"x":2}]}'),
    ("POST", RECORDS, {"content-type": "text/plain"}, ONE),
    ("POST", RECORDS, {"content-type": "text/plain", "if-none-match": "*"}, ONE),
    ("POST", BATCHES, {"content-type": "text/plain", "if-modified-since": "now"}, ONE),
    ("POST", f"{RECORDS}?acks=2", JSON, ONE),
    ("POST", BATCHES, RAW, bytes(new_batch(3))),
    ("POST", BATCHES, RAW, bytes(new_batch(3))[:-1]),
    ("POST", BATCHES, RAW | PRODUCER, bytes(new_batch(3))),
    ("POST", BATCHES, {"content-type": "application/octet-stream"}, bytes(new_batch(1))),
    ("GET", RECORDS, {}, b""),
    ("GET", RECORDS, {"accept": "application/x-ndjson"}, b""),
    ("GET", RECORDS, {"accept": "text/html"}, b""),
    ("GET", RECORDS, {"accept-encoding": "gzip"}, b""),
    ("GET", RECORDS, {"accept-encoding": "zstd, gzip;q=0.5"}, b""),
    ("GET", BATCHES, {}, b""),
    ("GET", BATCHES, {"accept": "text/html"}, b""),
    ("GET", f"{RECORDS}?offset=2&max_bytes=1", {}, b""),
    ("GET", f"{RECORDS}?offset=latest", {}, b""),
    ("GET", f"{RECORDS}?offset=earliest&isolation=read_committed", {}, b""),
    ("GET", f"{RECORDS}?offset=0&end_offset=2&min_bytes=5&max_wait_ms=0", {}, b""),
    ("GET", f"{RECORDS}?offset=0&log_id=AAAAAAAAAAAAAAAAAAAAAA.0", {}, b""),
    ("GET", f"{RECORDS}?offset=0&offset=1", {}, b""),
    ("GET", f"{RECORDS}?offset=999", {}, b""),
    ("GET", f"{RECORDS}?offset=%30", {}, b""),
    ("GET", f"{RECORDS}?offset=x", {}, b""),
    ("GET", f"{RECORDS}?isolation=log_end", {}, b""),
    ("GET", f"{RECORDS}?max_records=1&encoding=base64", {}, b""),
    ("GET", f"{RECORDS}?offset=1&max_records=2&encoding=utf8&offsets=string", {}, b""),
    ("GET", f"{RECORDS}?encoding=json&offsets=number", {"accept": "application/x-ndjson"}, b""),
    ("GET", f"{RECORDS}?max_records=0", {}, b""),
    ("GET", f"{RECORDS}?max_records=-1", {}, b""),
    ("GET", f"{RECORDS}?max_records=1&max_records=2", {}, b""),
    ("GET", f"{RECORDS}?encoding=hex", {}, b""),
    ("GET", f"{RECORDS}?offsets=roman", {}, b""),
    ("GET", f"{RECORDS}?log_id={'a' * 65}", {}, b""),
    ("GET", f"{RECORDS}?log_id=a%2Fb", {}, b""),
    ("GET", f"{BATCHES}?max_records=1", {}, b""),
    ("GET", f"{BATCHES}?encoding=json", {}, b""),
    ("GET", f"{BATCHES}?offsets=string", {}, b""),
    ("GET", f"{BATCHES}?offset=3&max_bytes=0&explain=1", {}, b""),
    ("POST", INGEST, JSON, b'{"a" : 1}'),
    ("POST", INGEST, {}, b"x"),
    ("POST", INGEST, JSON, b"{"),
    ("POST", INGEST, JSON, b""),
    ("POST", INGEST, NDJSON, b"1\n2\n"),
    ("POST", INGEST, NDJSON, b"1\n{\n"),
    ("POST", f"{INGEST}?split=array", JSON, b"[1,2]"),
    ("POST", f"{INGEST}?split=array", JSON, b"1"),
    ("POST", f"{INGEST}?split=lines", {"content-type": "text/plain"}, b"a\nb"),
    ("POST", f"{INGEST}?split=words", JSON, b"1"),
    ("POST", f"{INGEST}?split=lines&split=none", JSON, b"1"),
    ("POST", f"{INGEST}?acks=1", JSON, b"1"),
    ("POST", INGEST, JSON | EVENT | {"ce-id": ""}, b"1"),
    ("POST", INGEST, JSON | EVENT | {"ce-source": "%ff"}, b"1"),
    ("POST", INGEST, JSON | {"if-match": "what"}, b"1"),
    ("POST", INGEST, JSON | PRODUCER, b"1"),
    ("POST", INGEST, JSON | {"content-digest": "sha-256=:AAAA:"}, b"1"),
    ("POST", INGEST, JSON | {"content-encoding": "br"}, b"1"),
    ("GET", INGEST, {}, b""),
    ("PUT", INGEST, JSON, b"1"),
    ("POST", "/v1/topics/other/ingest", JSON, b"1"),
    ("GET", f"{RECORDS}?encoding=utf8", {}, b""),
    ("GET", OFFSETS, {}, b""),
    ("GET", f"{OFFSETS}?timestamp=latest", {}, b""),
    ("POST", OFFSETS, {}, b""),
    ("DELETE", RECORDS, {}, b""),
    ("GET", "/v1/topics/events/partitions/00/records", {}, b""),
    ("GET", "/v1/topics/events/partitions/9/records", {}, b""),
    ("GET", "/v1/topics/other/partitions/0/records", {}, b""),
    ("GET", "/v2/topics/events/partitions/0/records", {}, b""),
    ("GET", "/v1/topics/events%2Fpartitions/0/x/records", {}, b""),
    # From here on the batches of the services differ: the headers of a delivery have a secret key.
    ("POST", INGEST, JSON | EVENT, b"1"),
    ("POST", INGEST, JSON | EVENT, b"2"),
    ("POST", INGEST, JSON | {"webhook-id": "a"}, b"1"),
    ("POST", INGEST, JSON | {"webhook-id": "a"}, b"1"),
    ("POST", INGEST, JSON | {"webhook-id": "a" * 1_025}, b"1"),
    ("POST", INGEST, JSON | {"idempotency-key": "a"}, b"1"),
    ("POST", INGEST, JSON | {"idempotency-key": "a"}, b"2"),
    ("POST", INGEST, JSON | {"idempotency-key": ""}, b"2"),
)  # fmt: skip


LANES: dict[str, Callable[[Service], httpx.AsyncClient]] = {
    "slow": partial(wired, is_hot=False),
    "hot": wired,
}


@asynccontextmanager
async def both(service: Service) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """A client for each lane of one service."""
    async with wired(service) as quick, wired(service, is_hot=False) as thorough:
        yield quick, thorough


async def answers_of(
    client: httpx.AsyncClient,
    service: Service,
    requests: tuple[tuple[str, str, dict[str, str], bytes], ...],
) -> list[tuple[int, list[tuple[bytes, bytes]], bytes]]:
    """Status, headers and body of each answer, with the topic's id made equal."""
    topic_id = local(service).manager.topic("events").topic_id.encode()
    made = []
    for method, path, headers, body in requests:
        answer = await client.request(method, path, headers=headers | TRACE, content=body)
        shown = [(name, value.replace(topic_id, b"ID")) for name, value in answer.headers.raw]
        made.append((answer.status_code, shown, answer.content.replace(topic_id, b"ID")))
    return made


async def test_all_lanes_give_the_same_bytes(tmp_path: Path) -> None:
    """Status, headers and body of a hot response do not reveal which way in sent it (L1)."""
    made = []
    for name, lane in LANES.items():
        async with (
            open_service(tmp_path / name, clock=ManualClock()) as service,
            lane(service) as client,
        ):
            await client.put("/v1/topics/events", json={})
            made.append(await answers_of(client, service, REQUESTS))
    for request, by_slow, *others in zip(REQUESTS, *made, strict=True):
        for by_other in others:
            assert by_other == by_slow, request


REFUSED: tuple[tuple[str, str, dict[str, str], bytes], ...] = (
    ("POST", RECORDS, JSON, ONE),
    ("POST", f"{RECORDS}?acks=1", JSON | {"accept-encoding": "gzip"}, ONE),
    ("POST", BATCHES, RAW, bytes(new_batch(3))),
    ("GET", f"{RECORDS}?offset=0", {}, b""),
    ("GET", BATCHES, {"accept-encoding": "zstd"}, b""),
    ("GET", OFFSETS, {}, b""),
)


@pytest.mark.parametrize("min_coded_bytes", [1_024, 100])
async def test_who_is_not_let_in_is_told_the_same_on_all_lanes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, min_coded_bytes: int
) -> None:
    """A service that is full or stops gives the same bytes, counts and access lines (L1)."""
    caplog.set_level("INFO", logger="tidelog.access")
    made = []
    async with open_service(
        tmp_path, access_log=True, max_in_flight_requests=1, min_coded_bytes=min_coded_bytes
    ) as service:
        clients = [lane(service) for lane in LANES.values()]
        await clients[0].put("/v1/topics/events", json={})
        for client in clients:
            assert (await client.get(OFFSETS)).status_code == 200
        for client in clients:
            caplog.clear()
            before = refusals_in(service)
            with closing(service.admission.admit("another")):
                answers = await answers_of(client, service, REFUSED)
            service.admission.phase = Phase.DRAINING
            answers += await answers_of(client, service, REFUSED)
            service.admission.phase = Phase.READY
            counted = refusals_in(service) - before
            made.append((answers, counted, [told(one) for one in caplog.records]))
    for answers, counted, lines in made:
        assert {status for status, _, _ in answers} == {503}
        assert sum(counted.values()) == 2 * len(lines) == 4 * len(REFUSED)
        assert (answers, counted, lines) == made[0]


async def test_who_is_refused_is_named_and_charged_on_all_lanes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing scope costs what its answer takes; a quota that is used up has a name (L1, Z6)."""
    caplog.set_level("INFO", logger="tidelog.access")
    made = []
    for name, lane in LANES.items():
        directory = tmp_path / name
        directory.mkdir()
        admin = bearer(create_key(directory, "admin", "admin:*"))
        reader = bearer(create_key(directory, "reader", "read:*", quota={"bytes_out": 10}))
        async with (
            open_service(directory, clock=ManualClock(), access_log=True) as service,
            lane(service) as client,
        ):
            await client.put("/v1/topics/events", json={}, headers=admin)
            caplog.clear()
            sent: tuple[tuple[str, str, dict[str, str], bytes], ...] = (
                ("POST", RECORDS, JSON | reader, ONE),
                ("GET", RECORDS, reader, b""),
            )
            answers = await answers_of(client, service, sent)
        made.append((answers, [told(line) for line in caplog.records]))
    for answers, lines in made:
        assert [status for status, _, _ in answers] == [403, 429]
        assert (answers, lines) == made[0]
    assert all("key:reader" in line for line in made[0][1])


def refusals_in(service: Service) -> Counter[bytes]:
    """How often each operation was refused, and for what."""
    lines = [line.rpartition(b" ") for line in service.telemetry.exposition().splitlines()]
    return Counter(
        {
            name: int(float(count))
            for name, _, count in lines
            if b'status="503"' in name or name.startswith(b"tidelog_problems_total")
        }
    )


def told(line: logging.LogRecord) -> tuple[object, ...]:
    """Return the content of an access line, without times."""
    names = ("operation", "topic", "partition", "received_bytes", "sent_bytes", "principal")
    return (line.getMessage(), *(vars(line)[name] for name in (*names, "trace_id")))


async def test_an_immutable_page_is_the_same_on_both_lanes(tmp_path: Path) -> None:
    """Tags and 304 of one service are the same in both ways in."""
    async with open_service(tmp_path) as service, both(service) as (quick, thorough):
        await quick.put("/v1/topics/events", json={})
        location = (await quick.post(RECORDS, content=ONE, headers=JSON)).headers["location"]
        pages = [await client.get(location) for client in (quick, thorough)]
        assert pages[0].headers.raw == pages[1].headers.raw
        tag = {"if-none-match": pages[0].headers["etag"]}
        again = [await client.get(location, headers=tag) for client in (quick, thorough)]
        assert [answer.status_code for answer in again] == [304, 304]
        assert again[0].headers.raw == again[1].headers.raw


async def test_refusals_are_the_same_on_both_lanes(tmp_path: Path) -> None:
    """A full or stopping service sends the same bytes."""
    async with (
        open_service(tmp_path, max_in_flight_requests=1) as service,
        both(service) as (quick, thorough),
    ):
        await quick.put("/v1/topics/events", json={})
        ticket = service.admission.admit("another")
        busy = [await client.get(OFFSETS, headers=TRACE) for client in (quick, thorough)]
        ticket.close()
        service.drain()
        late = [await client.get(OFFSETS, headers=TRACE) for client in (quick, thorough)]
    for first, second in (busy, late):
        assert first.status_code == 503
        assert (first.headers.raw, first.content) == (second.headers.raw, second.content)


async def test_what_is_remembered_of_partitions_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of partitions do not fill the memory; a forgotten one is the same log again."""
    monkeypatch.setattr("app.operations.service.MAX_PARTITIONS", 2)
    async with open_service(tmp_path) as service, wired(service) as client:
        await client.put("/v1/topics/events", json={"partitions": 5})
        first = service.partition("events", 0)
        assert (await client.post(RECORDS, content=ONE, headers=JSON)).status_code == 201
        for number in range(5):
            path = f"/v1/topics/events/partitions/{number}/offsets"
            assert (await client.get(path)).status_code == 200
        again = service.partition("events", 0)
        assert again is not first
        assert again.identity == first.identity
        assert len((await client.get(RECORDS)).json()["records"]) == 1


def test_wrong_topic_defaults_stop_the_service(tmp_path: Path) -> None:
    """A default for topics that no topic could have is refused before anything is opened."""
    settings = Settings(data_directory=tmp_path, default_topic_config={"segment.bytes": "no"})
    with pytest.raises(EngineError):
        Service(settings)
