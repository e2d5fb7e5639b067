"""What a closed connection leaves: nothing that needs Python's cyclic garbage collector.

The service runs it rarely, so a reference cycle per connection would let memory grow.
"""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest

from app.operations.service import Service
from tests.support.service import BATCHES, OFFSETS, RECORDS, open_in_memory
from tests.support.wire import Listener, request, turn
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

BODY = b'{"records":[{"value":1}]}'
POLL = f"{RECORDS}?offset=latest&max_wait_ms=60000"
WHOLE = {
    "append": request("POST", RECORDS, BODY),
    "read": request("GET", f"{RECORDS}?offset=0"),
    "raw read": request("GET", f"{BATCHES}?offset=0"),
    "offsets": request("GET", OFFSETS),
    "listing": request("GET", "/v1/topics"),
    "nothing there": request("GET", "/v1/nothing"),
    "two at once": request("POST", RECORDS, BODY) + request("GET", f"{RECORDS}?offset=0"),
}
HALF = {
    "nothing": b"",
    "half a head": b"GET /v1/top",
    "half a body": request("POST", RECORDS, BODY)[:-5],
    "half a body elsewhere": request("POST", RECORDS.replace("e", "%65", 1), BODY)[:-5],
    "a poll": request("GET", POLL),
}


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    """The HTTP server of a service with one topic."""
    async with open_in_memory() as service:
        await make_topic(service)
        yield Listener(service)


async def make_topic(service: Service) -> None:
    async with wired(service) as client:
        assert (await client.put("/v1/topics/events", json={})).status_code == 201


@pytest.fixture
def nobody_looks() -> Iterator[None]:
    """The garbage collector does not run meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("sent", [*WHOLE, *HALF])
@pytest.mark.usefixtures("nobody_looks")
async def test_a_connection_that_has_ended_is_gone(listener: Listener, sent: str) -> None:
    """Whatever was requested on it, with a response or without."""
    connection = listener.connect()
    gone = weakref.ref(connection.protocol)
    connection.send({**WHOLE, **HALF}[sent])
    if sent in WHOLE:
        await connection.answer()
    if sent == "two at once":
        await connection.answer()
    await turn()
    connection.hang_up()
    del connection
    async with asyncio.timeout(10):
        while gone() is not None:  # a worker may hold its last work for a moment
            await turn()
