"""Bodies that stop coming: they give back what they hold, on every lane."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.operations.service import Service
from tests.support.service import RECORDS, open_service
from tests.support.wire import Listener, request

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
BODY = b'{"records":[{"value":"%b"}]}' % (b"x" * 60_000)
APPEND = request("POST", f"{RECORDS}?acks=1", BODY, JSON)
HEAD_BYTES = len(APPEND) - len(BODY)
SPELT = APPEND.replace(b"/events/", b"/event%73/")
MARKED = APPEND.replace(b"?acks=1", b"?acks=0")


@pytest.fixture
async def service(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Service]:
    """An open service that knows the head of `APPEND`, and soon gives up bodies that stall."""
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
    """It is told 408 with the name of the rate long before `body_timeout_ms`."""
    connection = Listener(service).connect()
    connection.send(sent)
    reply = await connection.answer()
    assert reply.status == 408
    assert b"min_body_bytes_per_second" in reply.body
    assert (service.admission.requests, service.admission.body_bytes) == (0, 0)
