"""Bodies: their memory is taken as they come, and given back with the answer."""

import gc
import gzip
import random
import tracemalloc
from pathlib import Path

import pytest

from app.operations.service import Service
from tests.support.service import BATCHES, NDJSON, RAW, RECORDS, running
from tests.support.wire import Listener, request

pytestmark = pytest.mark.anyio


async def test_memory_is_taken_as_a_body_comes(service: Service) -> None:
    """What a head announces is not reserved, and what has come is counted and held once."""
    connection = Listener(service).connect()
    assert (await connection.ask(request("PUT", "/v1/topics/events", b"{}"))).status == 201
    head, body = (
        request("POST", f"{BATCHES}?acks=1", b"", {**RAW, "content-length": "900000"}),
        b"x" * 1000,
    )
    connection.send(head)
    tracemalloc.start()
    try:
        for count in range(1, 101):
            connection.send(body)
            assert service.admission.body_bytes == count * len(body)
            assert tracemalloc.get_traced_memory()[0] < 2 * count * len(body) + 16 * 1024
    finally:
        tracemalloc.stop()
    connection.hang_up()
    assert service.admission.requests == service.admission.body_bytes == 0


@pytest.mark.parametrize("end", [b"", b"?"])
async def test_an_idle_connection_holds_no_body(service: Service, end: bytes) -> None:
    """What a request brought goes with its answer, and not with the next request."""
    body = b'{"value":1}\n' * 8_000 + end
    append = request("POST", f"{RECORDS}?acks=1", body, NDJSON)
    connection = Listener(service).connect()
    assert (await connection.ask(request("PUT", "/v1/topics/events", b"{}"))).status == 201
    assert (await connection.ask(append)).status == (400 if end else 201)
    tracemalloc.start()
    try:
        connection.send(append[:500])
        connection.send(append[500:])
        assert (await connection.answer()).status == (400 if end else 201)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < len(body) // 2
    finally:
        tracemalloc.stop()
    connection.hang_up()


async def test_a_decoded_body_is_held_beside_the_one_that_was_sent(tmp_path: Path) -> None:
    """Each fits into the memory for bodies, and both do not: 503, and nothing is held."""
    content = random.Random(1).randbytes(45_000).hex().encode()
    body = gzip.compress(b'{"records":[{"value":"%b"}]}' % content)
    async with running(tmp_path, max_in_flight_bytes=100_000) as api:
        await api.create()
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        sent = await api.client.post(RECORDS, content=body, headers=headers)
        assert len(body) < 100_000 > len(content)
        assert (sent.status_code, sent.json()["limit"]) == (503, "max_in_flight_bytes"), sent.text
        assert api.service.admission.body_bytes == 0
