"""Each delivery once: an id that a sender repeats writes no second record, on every way in."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.operations.service import Service
from tests.support.service import client_of, slow
from tests.support.wire import wired

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/events/ingest"
EVENT = {"specversion": "1.0", "id": "7", "source": "/a", "type": "b"}
STRUCTURED = {"content-type": "application/cloudevents+json"}
WAYS: dict[str, Callable[[Service], httpx.AsyncClient]] = {
    "routes": lambda service: client_of(slow(service)),
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
        for body in (
            b'{"event_id":"a"}',
            b'{"event_id":"a","x":1}',
            b'{"event_id":7}',
            b"{}",
            b"{}",
        ):
            answer = await client.post(INGEST, content=body)
            assert answer.status_code == 200, answer.text
        assert end_of(service) == 4
        await put_profile(service, delivery_id={"header": "X-Id"})
        for value in ("a", "a", "b", ""):
            await client.post(INGEST, content=b"x", headers={"x-id": value})
        assert end_of(service) == 7
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
    async with client_of(slow(service)) as client:
        path = "/v1/topics/events/ingest-profile"
        answer = await client.put(path, json=document)
        assert answer.status_code in {200, 201}, answer.text
