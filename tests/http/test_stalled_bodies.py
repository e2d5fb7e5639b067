"""Bodies that stop coming: they give back what they hold, on every lane."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.operations.service import Service
from tests.support.service import RECORDS, open_service
from tests.support.wire import Listener, request, turn

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
BODY = b'{"records":[{"value":"%b"}]}' % (b"x" * 60_000)
APPEND = request("POST", f"{RECORDS}?acks=1", BODY, JSON)
HEAD_BYTES = len(APPEND) - len(BODY)
SPELT = APPEND.replace(b"/events/", b"/event%73/")
MARKED = APPEND.replace(b"?acks=1", b"?acks=0")


@pytest.fixture
async def service(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Service]:
    """An open service that has cached the head of `APPEND`, with short body timeouts."""
    async with open_service(tmp_path, body_stall_timeout_ms=50) as service:
        connection = Listener(service).connect()
        for asked in (
            request("PUT", "/v1/topics/events", b"{}", JSON),
            request("GET", RECORDS),
            APPEND,
        ):
            assert (await connection.ask(asked)).status in {200, 201}
        yield service


@pytest.mark.parametrize(
    "sent",
    [APPEND[: HEAD_BYTES + 10], APPEND[:-1], MARKED[:-1], SPELT[: len(SPELT) - 1]],
    ids=["received directly", "through the parser", "not known", "routes"],
)
async def test_a_stalled_body_gives_back_what_it_holds(service: Service, sent: bytes) -> None:
    """It gets 408 with the name of the rate limit long before `body_timeout_ms`."""
    connection = Listener(service).connect()
    connection.send(sent)
    reply = await connection.answer()
    assert reply.status == 408
    assert b"min_body_bytes_per_second" in reply.body
    assert (service.admission.requests, service.admission.body_bytes) == (0, 0)


async def test_a_slow_body_is_waited_for_until_it_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer that was armed with the first bytes goes by the deadline that later ones moved."""
    loop = asyncio.get_running_loop()
    real, passed = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + passed)
    async with open_service(
        tmp_path,
        body_timeout_ms=1_000_000,
        body_stall_timeout_ms=100_000,
        min_body_bytes_per_second=1,
    ) as service:
        connection = Listener(service).connect()
        for asked in (request("PUT", "/v1/topics/events", b"{}", JSON), request("GET", RECORDS)):
            assert (await connection.ask(asked)).status in {200, 201}
        for _ in range(2):
            assert (await connection.ask(APPEND)).status == 201
        connection.send(APPEND[: HEAD_BYTES + 10])
        passed = 60.0
        connection.send(APPEND[HEAD_BYTES + 10 : -1])
        passed = 110.0
        await turn()
        await turn()
        assert service.admission.requests == 1
        passed = 200.0
        assert (await connection.answer()).status == 408
