"""Each delivery once: an id that a sender repeats writes no second record, on every way in."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from app.operations.deliveries.idempotency_key import INLINE_BYTES
from app.operations.service import Service
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/events/ingest"
EVENT = {"specversion": "1.0", "id": "7", "source": "/a", "type": "b"}
STRUCTURED = {"content-type": "application/cloudevents+json"}
WAYS: dict[str, Callable[[Service], httpx.AsyncClient]] = {
    "routes": partial(wired, is_hot=False),
    "wire": wired,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[[Service], httpx.AsyncClient]:
    return WAYS[request.param]


def end_of(service: Service, partition: int = 0) -> int:
    return service.partition("events", partition).watermarks.log_end_offset


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"webhook-id": "msg_1"}, b"{}"),
        ({"x-github-delivery": "72d3162e"}, b"{}"),
        ({f"ce-{name}": value for name, value in EVENT.items()}, b"x"),
        (STRUCTURED, json.dumps(EVENT).encode()),
        ({"idempotency-key": "a"}, b"x"),
        ({"idempotency-key": "a"}, b"x" * (INLINE_BYTES + 1)),  # hashed beside the event loop
    ],
)
async def test_a_repeated_delivery_is_written_once(
    service: Service,
    way: Callable[[Service], httpx.AsyncClient],
    headers: dict[str, str],
    body: bytes,
) -> None:
    """The repetition gets the first offsets; another id is another delivery (N10)."""
    await service.topics.create("events", 3, {})
    async with way(service) as client:
        first, second = [await client.post(INGEST, content=body, headers=headers) for _ in "ab"]
        assert first.status_code == second.status_code == 200, first.text
        assert first.json() == second.json()
        assert "idempotency-replayed" not in first.headers
        assert second.headers["idempotency-replayed"] == "true"
        assert sum(end_of(service, partition) for partition in range(3)) == 1
        name = next(iter(headers))
        other = headers | ({name: "other"} if headers != STRUCTURED else {})
        content = body.replace(b'"7"', b'"8"')
        third = await client.post(INGEST, content=content, headers=other | _another_event(headers))
        assert "idempotency-replayed" not in third.headers, third.text
        assert sum(end_of(service, partition) for partition in range(3)) == 2


def _another_event(headers: dict[str, str]) -> dict[str, str]:
    return {"ce-specversion": "1.0", "ce-id": "8"} if "ce-id" in headers else {}


async def test_a_profile_says_where_the_id_is(
    service: Service, way: Callable[[Service], httpx.AsyncClient]
) -> None:
    """A header, or a place in the body; without an id nothing is remembered (N10)."""
    await service.topics.create("events", 1, {})
    async with way(service) as client:
        await put_profile(service, delivery_id={"pointer": "/event_id"})
        for body, status in (
            (b'{"event_id":"a"}', 200),
            (b'{"event_id":"a"}', 200),
            (b'{"event_id":"a","x":1}', 422),
            (b'{"event_id":7}', 200),
            (b'{"event_id":"7"}', 200),
            (b'{"event_id":[7]}', 200),
            (b'{"event_id":"[7]"}', 200),
            (b"{}", 200),
            (b"{}", 200),
        ):
            answer = await client.post(INGEST, content=body)
            assert answer.status_code == status, answer.text
        assert end_of(service) == 7
        await put_profile(service, delivery_id={"header": "X-Id"})
        for value in ("a", "a", "b", ""):
            await client.post(INGEST, content=b"x", headers={"x-id": value})
        assert end_of(service) == 10
        answer = await client.post(INGEST, content=b"x", headers={"x-id": "a" * 1_025})
        assert answer.status_code == 400
        assert "1025 bytes" in answer.json()["detail"]


async def test_a_repeated_split_delivery_writes_no_partition_twice(
    service: Service, way: Callable[[Service], httpx.AsyncClient]
) -> None:
    """Keys of several partitions: all parts are found again, also in a larger topic (N6, N10)."""
    await service.topics.create("events", 4, {})
    await put_profile(service, split="array", key={"pointer": "/k"})
    body = json.dumps([{"k": f"key-{n}"} for n in range(40)] + [{}]).encode()
    headers = {"content-type": "application/json", "webhook-id": "a"}
    async with way(service) as client:
        first = (await client.post(INGEST, content=body, headers=headers)).json()
        assert first["count"] == 41
        parts = first["partitions"]
        assert len(parts) == 4
        assert sum(part["count"] for part in parts) == 41
        assert {key: parts[0][key] for key in ("partition", "offset")} == {
            key: first[key] for key in ("partition", "offset")
        }
        await service.topics.update("events", {}, 6)
        assert (await client.post(INGEST, content=body, headers=headers)).json() == first
    assert [end_of(service, part["partition"]) for part in parts] == [
        part["count"] for part in parts
    ]
    assert end_of(service, 4) == end_of(service, 5) == 0


async def test_requests_with_one_id_at_the_same_time_write_one_record(service: Service) -> None:
    """A retry that overtakes its first request waits for it (N10)."""
    await service.topics.create("events", 1, {})

    async def post() -> Any:
        async with wired(service) as client:
            answer = await client.post(INGEST, content=b"x", headers={"webhook-id": "a"})
            return answer.json()

    answers = await asyncio.gather(*[post() for _ in range(8)])
    assert all(answer == answers[0] for answer in answers)
    assert end_of(service) == 1


async def put_profile(service: Service, **document: Any) -> None:
    """Set the profile of the topic."""
    async with wired(service, is_hot=False) as client:
        path = "/v1/topics/events/ingest-profile"
        answer = await client.put(path, json=document)
        assert answer.status_code in {200, 201}, answer.text


@pytest.mark.parametrize("name", ["webhook-id", "x-github-delivery", "idempotency-key"])
@pytest.mark.parametrize(
    ("profile", "body", "query"),
    [
        ({"delivery_id": {"pointer": "/id"}}, b"{}", ""),
        ({"delivery_id": {"pointer": "/id"}}, b'{"id":null}', ""),
        ({"delivery_id": {"pointer": "/id"}}, b'{"id":""}', ""),
        ({"delivery_id": {"pointer": "/id"}}, b"text", ""),
        ({"delivery_id": {"pointer": "/id"}}, b'[{"id":"a"}]', "?split=array"),
        ({"delivery_id": {"header": "x-id"}}, b"{}", ""),
        ({}, b"1\n2", "?split=lines"),
    ],
)
async def test_a_body_without_an_id_is_known_by_the_head(
    service: Service,
    way: Callable[[Service], httpx.AsyncClient],
    name: str,
    profile: dict[str, object],
    body: bytes,
    query: str,
) -> None:
    """Whatever the profile says: where it finds nothing, the sender's own id counts."""
    await service.topics.create("events", 1, {})
    await put_profile(service, **profile)
    headers = {name: "a", "content-type": "application/json" if body != b"text" else "text/plain"}
    async with way(service) as client:
        first, second = [
            await client.post(INGEST + query, content=body, headers=headers) for _ in "ab"
        ]
        assert first.json() == second.json()
        assert second.headers["idempotency-replayed"] == "true"
        other = body.replace(b"{", b'{"x":1,') if b"{" in body else body + b"3"
        other = other.replace(b",}", b"}")
        reused = await client.post(INGEST + query, content=other, headers=headers)
        assert (reused.status_code, reused.json()["code"]) == (422, "idempotency_key_reused")


async def test_an_id_is_its_senders_own(service: Service) -> None:
    """Two tokens of one topic: the second's delivery is not answered with the first one's."""
    await service.topics.create("events", 1, {})
    async with wired(service, is_hot=False) as client:
        made = [await client.post("/v1/topics/events/ingest-tokens") for _ in "ab"]
        urls = [one.json()["url"] for one in made]
        headers = {"x-github-delivery": "order-1001"}
        answers = [
            await client.post(url, content=url.encode(), headers=headers)
            for url in (*urls, *urls, INGEST)
        ]
        assert [one.json()["offset"] for one in answers] == [0, 1, 0, 1, 2]


@pytest.mark.parametrize("body", [b"\x0a\x00", b'{"resourceLogs":[{}]}'])
async def test_an_export_is_stored_once(
    service: Service, way: Callable[[Service], httpx.AsyncClient], body: bytes
) -> None:
    """By Idempotency-Key and by webhook-id, as any other body; a key of 300 characters is none."""
    await service.topics.create("events", 1, {})
    kind = "application/json" if body.startswith(b"{") else "application/x-protobuf"
    async with way(service) as client:
        for name in ("idempotency-key", "webhook-id"):
            headers = {"content-type": kind, name: "k1"}
            url = f"{INGEST}/otlp/v1/logs"
            before = end_of(service)
            for _ in range(2):
                answer = await client.post(url, content=body, headers=headers)
                assert answer.status_code == 200
            assert end_of(service) == before + 1
            other = body.replace(b"{}]", b"{},{}]") if body.startswith(b"{") else body * 2
            assert (await client.post(url, content=other, headers=headers)).status_code == 422
        long = {"content-type": kind, "idempotency-key": "k" * 300}
        assert (await client.post(url, content=body, headers=long)).status_code == 400
