"""Quotas over HTTP: what is counted, and how it is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from anyio.lowlevel import checkpoint

from app.operations.service import Service
from tests.support.credentials import bearer, create_key
from tests.support.service import NDJSON, RECORDS, Api, open_service, running
from tests.support.streams import STREAM
from tests.support.time import ManualClock
from tests.support.wire import Listener, request
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
ALL = ("read:*", "append:*", "admin:*")


def refused(answer: httpx.Response, seconds: int, limit: str) -> None:
    """Check the refusal of a client that has used up its quota."""
    assert answer.status_code == 429, answer.text
    problem = answer.json()
    assert (problem["code"], problem["retryable"]) == ("quota_exceeded", True)
    assert (problem["limit"], problem["kafka_error_code"]) == (limit, 89)
    assert problem["side_effects"] == "none"
    assert answer.headers["retry-after"] == str(seconds)


async def filled(api: Api, size_bytes: int) -> None:
    """Append one record of this many bytes."""
    answer = await api.client.post(RECORDS, json={"records": [{"value": "x" * size_bytes}]})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("is_hot", [True, False])
async def test_bytes_that_come_in_are_counted(tmp_path: Path, *, is_hot: bool) -> None:
    """A body beyond the rate is taken, and the next one when it has been paid for."""
    clock = ManualClock()
    async with running(tmp_path, clock=clock, quota_bytes_in_per_second=1_000) as api:
        await api.create()
        clock.advance(1_000)
        async with wired(api.service, is_hot=is_hot) as client:
            body = {"records": [{"value": "x" * 10_000}]}
            assert (await client.post(RECORDS, json=body)).status_code == 201
            refused(await client.post(RECORDS, json=body), 10, "quota_bytes_in_per_second")
            assert (await client.get(RECORDS)).status_code == 200
            clock.advance(10_000)
            assert (await client.post(RECORDS, json=body)).status_code == 201
    assert api.log().watermarks.log_end_offset == 2


@pytest.mark.parametrize("is_hot", [True, False])
async def test_bytes_that_go_out_are_counted(tmp_path: Path, *, is_hot: bool) -> None:
    """A large answer is given, and the next one when it has been paid for."""
    clock = ManualClock()
    async with running(tmp_path, clock=clock, quota_bytes_out_per_second=1_000) as api:
        await api.create()
        await filled(api, 5_000)
        clock.advance(2_000)
        async with wired(api.service, is_hot=is_hot) as client:
            client.headers["accept-encoding"] = "identity"  # sent bytes count
            answer = await client.get(RECORDS)
            seconds = -(-(len(answer.content) - 1_000) // 1_000)
            refused(await client.get(RECORDS), seconds, "quota_bytes_out_per_second")
            await filled(api, 10)  # append without read is allowed
            clock.advance(seconds * 1_000)
            assert (await client.get(RECORDS)).status_code == 200


async def test_requests_are_counted_for_each_principal(tmp_path: Path) -> None:
    """One key's use does not count for another, and a key may have its own rate (Z6)."""
    keys = {
        "one": create_key(tmp_path, "one", *ALL),
        "two": create_key(tmp_path, "two", *ALL),
        "more": create_key(tmp_path, "more", *ALL, quota={"requests": 5}),
        "free": create_key(tmp_path, "free", *ALL, quota={"requests": 0}),
    }
    clock = ManualClock()
    async with running(tmp_path, clock=clock, quota_requests_per_second=2) as api:
        counted = {}
        for name, key in keys.items():
            answers = [await api.client.get("/v1/topics", headers=bearer(key)) for _ in range(8)]
            counted[name] = sum(answer.status_code == 200 for answer in answers)
            if counted[name] < 8:
                refused(answers[-1], 1, "quota_requests_per_second")
        assert counted == {"one": 2, "two": 2, "more": 5, "free": 8}
        assert (await api.client.get("/livez")).status_code == 200


async def test_without_credentials_all_clients_share_a_quota(tmp_path: Path) -> None:
    """Without credentials there are no principals, so no quota per principal."""
    async with (
        running(tmp_path, clock=ManualClock(), quota_requests_per_second=2) as api,
        wired(api.service) as another,
    ):
        for client in (api.client, another):
            assert (await client.get("/v1/topics")).status_code == 200
        for client in (api.client, another):
            refused(await client.get("/v1/topics"), 1, "quota_requests_per_second")


async def test_a_refused_request_holds_nothing(tmp_path: Path) -> None:
    """It holds nothing, and its operation is not executed."""
    async with running(tmp_path, clock=ManualClock(), quota_requests_per_second=1) as api:
        await api.create()
        answer = await api.client.delete("/v1/topics/events")
        refused(answer, 1, "quota_requests_per_second")
        assert "events" in api.local.manager.topics()
        admission = api.service.admission
        assert (admission.requests, admission.body_bytes, admission.answer_bytes) == (0, 0, 0)


async def test_the_limits_list_the_quotas(tmp_path: Path) -> None:
    """A client can look up its quotas."""
    async with running(tmp_path, quota_requests_per_second=7) as api:
        limits = (await api.client.get("/v1/limits")).json()["limits"]
        assert limits["quota_requests_per_second"] == 7
        assert limits["quota_bytes_in_per_second"] == 0


LARGE = b'{"records":[{"value":"%b"}]}' % (b"x" * 60_000)
KNOWN = request("POST", RECORDS, LARGE, JSON)
HEAD_BYTES = len(KNOWN) - len(LARGE)


@asynccontextmanager
async def metered(
    directory: Path, **settings: Any
) -> AsyncIterator[tuple[Service, Listener, ManualClock]]:
    """A service with unused quotas, a topic, and the head of `KNOWN` cached."""
    clock = ManualClock()
    async with open_service(directory, clock=clock, **settings) as service:
        listener = Listener(service)
        connection = listener.connect()
        asked = [request("PUT", "/v1/topics/events", b"{}", JSON), request("GET", RECORDS), KNOWN]
        for one in asked:
            assert (await connection.ask(one)).status in {200, 201}
            clock.advance(1_000_000)
        yield service, listener, clock


@pytest.mark.parametrize(
    "sent",
    [
        KNOWN,
        KNOWN[: HEAD_BYTES + 1_000],
        KNOWN.replace(b"host: test", b"host: 127.0.0.1")[: HEAD_BYTES + 1_000],
        KNOWN.replace(b"/events/", b"/event%73/"),
    ],
    ids=["known", "known, unfinished", "not known, unfinished", "routes"],
)
async def test_what_is_refused_for_lack_of_room_costs_nothing(tmp_path: Path, sent: bytes) -> None:
    """However often it is tried while the service is full, the whole quota is left afterwards."""
    limits = {"quota_requests_per_second": 3, "max_in_flight_requests": 1}
    limits["quota_bytes_out_per_second"] = 100
    async with metered(tmp_path, **limits) as (service, listener, _):
        ticket = service.admission.admit("another")
        for _ in range(8):
            connection = listener.connect()
            assert (await connection.ask(sent)).status == 503
            connection.hang_up()
        ticket.close()
        asked = [request("GET", RECORDS), KNOWN, KNOWN, KNOWN]
        statuses = [(await listener.connect().ask(one)).status for one in asked]
    assert statuses == [200, 201, 201, 429]


@pytest.mark.parametrize("path", [RECORDS, RECORDS.replace("events", "event%73")])
async def test_a_body_without_room_costs_nothing(tmp_path: Path, path: str) -> None:
    """A request that was let in and then did not fit is refused, and is not counted."""
    limits = {"quota_requests_per_second": 3, "quota_bytes_in_per_second": 100_000}
    async with metered(tmp_path, max_in_flight_bytes=100_000, **limits) as (service, listener, _):
        ticket = service.admission.admit("another")
        ticket.hold_body(100_000)
        sent = request("POST", path, LARGE, JSON)
        for _ in range(8):
            assert (await listener.connect().ask(sent)).status == 503
        ticket.close()
        assert (await listener.connect().ask(KNOWN)).status == 201


@pytest.mark.parametrize("cut", [HEAD_BYTES + 1_000, len(KNOWN) - 1])
async def test_a_body_counts_once_and_as_it_comes(tmp_path: Path, cut: int) -> None:
    """The received part of an unfinished body counts for others at once, and no more than that."""
    async with metered(tmp_path, quota_bytes_in_per_second=100) as (_, listener, _clock):
        slow = listener.connect()
        slow.send(KNOWN[:HEAD_BYTES])
        slow.send(KNOWN[HEAD_BYTES:cut])
        came = cut - HEAD_BYTES
        refused = await listener.connect().ask(KNOWN)
        assert refused.status == 429
        assert dict(refused.headers)[b"retry-after"] == b"%d" % -(-(came - 100) // 100)
        slow.send(KNOWN[cut:])
        assert (await slow.answer()).status == 201
        refused = await listener.connect().ask(KNOWN)
        assert dict(refused.headers)[b"retry-after"] == b"%d" % -(-(len(LARGE) - 100) // 100)


async def test_a_stream_is_as_fast_as_its_quota(tmp_path: Path) -> None:
    """It is counted as it comes, and its client waits until that is paid for; nothing is lost."""
    rate = 100_000
    piece = b'{"value":"%b"}\n' % (b"x" * 1_000) * 150

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(2):
            yield piece

    async with running(tmp_path, quota_bytes_in_per_second=rate) as api:
        await api.create()
        begun = monotonic()
        post = api.client.post(STREAM, content=pieces(), headers=NDJSON)
        stream = asyncio.create_task(post)
        while (await api.client.post(RECORDS, json={})).status_code != 429:
            await checkpoint()
        assert not stream.done()
        answer = await stream
        assert monotonic() - begun > (len(piece) - rate) / rate
    assert (answer.status_code, answer.json()["count"]) == (201, 300)
