"""Large bodies of known heads: received where they will stay, and nothing of what follows them."""

import asyncio
import gc
import socket
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from app.operations.service import Service
from app.wire.body_receiver import DIRECT_BYTES, FIRST_BYTES, GROWTH, BodyReceiver
from engine.log.log import Log
from engine.types import FetchIsolation
from tests.support.builders import new_batch
from tests.support.server import serving
from tests.support.service import BATCHES, RAW, RECORDS, log_of, open_service
from tests.support.wire import Connection, Listener, request

pytestmark = pytest.mark.anyio

BATCH = bytes(new_batch(90, value=b"x" * 1000))
APPEND = request("POST", f"{BATCHES}?acks=1", BATCH, RAW)
HEAD_BYTES = len(APPEND) - len(BATCH)
LOOK = request("GET", BATCHES)


async def learned(service: Service) -> Connection:
    """A connection whose service has met the head of `APPEND`: it came alone, then its body."""
    connection = Listener(service).connect()
    for setting_up in (request("PUT", "/v1/topics/events", b"{}"), LOOK):
        connection.send(setting_up)
        assert (await connection.answer()).status in {200, 201}
    connection.send(APPEND)
    assert (await connection.answer()).status == 201
    return connection


def receives(connection: Connection) -> bool:
    """Whether what arrives goes straight into the buffer of a body."""
    return isinstance(connection.wire.receiver, BodyReceiver)


def bodies_in(log: Log) -> list[bytes]:
    """The batches of the log as they were sent: with an offset and an epoch of 0, and without."""
    fetched = log.reader.read(0, max_bytes=1 << 24, isolation=FetchIsolation.LOG_END)
    assert fetched is not None
    data, size = bytes(fetched.data), len(BATCH)
    return [data[at + 16 : at + size] for at in range(0, len(data), size)]


CUTS = (HEAD_BYTES, HEAD_BYTES + 1, HEAD_BYTES + 20_000, len(APPEND) - DIRECT_BYTES)


@pytest.mark.parametrize("cut", CUTS)
async def test_a_body_goes_into_one_buffer_wherever_it_is_cut(service: Service, cut: int) -> None:
    """Its first bytes come with its head, the rest byte by byte or at once: it is the same body."""
    connection = await learned(service)
    for rest in ((cut, cut + 1, cut + 2), (cut,)):
        places = [0, *rest, len(APPEND)]
        for start, stop in pairwise(places):
            connection.send(APPEND[start:stop])
            assert receives(connection) is (stop < len(APPEND))
        assert (await connection.answer()).status == 201
    assert bodies_in(log_of(service)) == [BATCH[16:]] * 3
    assert service.admission.requests == service.admission.body_bytes == 0


async def test_what_follows_the_body_is_the_next_request(service: Service) -> None:
    """The receiver ends where the body does, and the parser goes on where it stood."""
    connection = await learned(service)
    connection.send(APPEND[:200])
    connection.send(APPEND[200:] + LOOK + APPEND)
    assert not receives(connection)
    assert [(await connection.answer()).status for _ in range(3)] == [201, 200, 201]
    assert len(bodies_in(log_of(service))) == 3


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_other_bodies_go_through_the_parser(service: Service, scheme: str) -> None:
    """One that lacks little is not worth the change; TLS copies what comes through it anyway."""
    connection = await learned(service)
    connection.protocol.scheme = scheme  # type: ignore[assignment]  # one of two
    cut = len(APPEND) - DIRECT_BYTES + (scheme == "http")
    connection.send(APPEND[:cut])
    assert not receives(connection)
    connection.send(APPEND[cut:])
    assert (await connection.answer()).status == 201


async def test_a_body_that_stays_out_is_not_waited_for(service: Service) -> None:
    """After its time the client is told so; what it sends of the body later is passed over."""
    connection = await learned(service)
    connection.send(APPEND[:5000])
    assert (await connection.answer()).status == 408
    assert receives(connection)
    connection.send(APPEND[5000:] + LOOK)
    assert (await connection.answer()).status == 200
    assert len(bodies_in(log_of(service))) == 1


async def test_memory_is_taken_as_a_body_comes(tmp_path: Path) -> None:
    """Heads that announce 16 MiB take a first buffer each, which is counted before it is there."""
    heads = 40
    async with open_service(tmp_path, max_in_flight_bytes=2 * heads * FIRST_BYTES) as service:
        await learned(service)
        listener = Listener(service)
        large = request("POST", f"{BATCHES}?acks=1", b"", RAW | {"content-length": str(16 << 20)})
        teaching = listener.connect()
        teaching.send(large)
        teaching.hang_up()
        tracemalloc.start()
        try:
            connections = [listener.connect() for _ in range(heads + 1)]
            for connection in connections:
                connection.send(large)
                connection.send(b"x")
            held_bytes = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert heads * FIRST_BYTES < held_bytes < 2 * heads * FIRST_BYTES
        assert service.admission.body_bytes == heads * FIRST_BYTES
        assert b'"limit":"max_share_percent"' in (await connections.pop().answer()).body
        for connection in connections:
            connection.hang_up()
        assert service.admission.body_bytes == 0


@pytest.mark.parametrize("step", [FIRST_BYTES // 8, FIRST_BYTES, 3 * FIRST_BYTES])
async def test_a_buffer_grows_with_what_has_come(service: Service, step: int) -> None:
    """What is counted is the buffer, at most so many times what came; the body is whole."""
    body = b'{"records":[{"value":"%b"}]}' % (b"x" * 900_000)
    append = request("POST", f"{RECORDS}?acks=1", body, JSON)
    head_bytes = len(append) - len(body)
    connection = await learned(service)
    connection.send(request("GET", RECORDS))
    assert (await connection.answer()).status == 200
    for _ in range(2):
        connection.send(append[:head_bytes])
        for start in range(0, len(body), step):
            piece = body[start : start + step]
            connection.send(append[head_bytes + start :][: len(piece)])
            came = start + len(piece)
            if came < len(body):
                assert came <= service.admission.body_bytes <= max(FIRST_BYTES, GROWTH * came)
        assert (await connection.answer()).status == 201
    assert service.admission.body_bytes == 0
    assert log_of(service).watermarks.log_end_offset == 3 + 90 - 1


async def test_a_body_that_grows_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """It is refused in the middle, the rest of it is passed over, and the connection goes on."""
    limit = len(BATCH) - 1
    async with open_service(tmp_path, max_in_flight_bytes=len(BATCH)) as service:
        connection = await learned(service)
        ticket = service.admission.admit("another")
        ticket.hold_body(len(BATCH) - limit)
        connection.send(APPEND[: HEAD_BYTES + 3000])
        assert (await connection.answer()).status == 503
        assert receives(connection)
        connection.send(APPEND[HEAD_BYTES + 3000 :])
        ticket.close()
        assert service.admission.body_bytes == 0
        connection.send(APPEND)
        assert (await connection.answer()).status == 201


async def test_a_buffer_that_may_not_grow_refuses_its_body(tmp_path: Path) -> None:
    """Others took the memory after the first buffer: the rest is discarded as it comes."""
    limit_bytes = 16 * FIRST_BYTES
    body = b'{"records":[{"value":"%b"}]}' % (b"x" * 900_000)
    append = request("POST", f"{RECORDS}?acks=1", body, JSON)
    head_bytes = len(append) - len(body)
    async with open_service(
        tmp_path, max_in_flight_bytes=limit_bytes, max_share_percent=100
    ) as service:
        connection = await learned(service)
        assert (await connection.ask(request("GET", RECORDS))).status == 200
        assert (await connection.ask(append)).status == 201
        ended = log_of(service).watermarks.log_end_offset
        connection.send(append[: head_bytes + 10])
        connection.send(append[head_bytes + 10 : head_bytes + FIRST_BYTES])
        assert service.admission.body_bytes == FIRST_BYTES
        ticket = service.admission.admit("another")
        ticket.hold_body(limit_bytes - FIRST_BYTES)
        connection.send(append[head_bytes + FIRST_BYTES : -1])
        reply = await connection.answer()
        assert (reply.status, b'"limit":"max_in_flight_bytes"' in reply.body) == (503, True)
        ticket.close()
        assert service.admission.body_bytes == 0
        connection.send(append[-1:] + LOOK)
        assert (await connection.answer()).status == 200
        assert log_of(service).watermarks.log_end_offset == ended


async def test_a_request_that_its_headers_spoil_keeps_no_body(service: Service) -> None:
    """It is answered before its body is there, and the body is not taken for anything else."""
    connection = await learned(service)
    spoilt = request("POST", f"{BATCHES}?acks=1", BATCH, {**RAW, "content-type": "text/plain"})
    connection.send(spoilt)
    assert (await connection.answer()).status == 415
    connection.send(spoilt[:300])
    assert receives(connection)
    assert (await connection.answer()).status == 415
    connection.send(spoilt[300:])
    assert service.admission.requests == service.admission.body_bytes == 0


async def test_a_body_that_nobody_has_room_for_is_passed_over(tmp_path: Path) -> None:
    """The refusal of a known head does not wait for the body, of which nothing is kept."""
    async with open_service(tmp_path, max_in_flight_requests=1) as service:
        connection = await learned(service)
        ticket = service.admission.admit("another")
        connection.send(APPEND[:300])
        assert not receives(connection)
        assert not connection.has_tasks
        assert (await connection.answer()).status == 503
        ticket.close()
        connection.send(APPEND[300:] + APPEND)
        assert (await connection.answer()).status == 201
        assert len(bodies_in(log_of(service))) == 2
        assert service.admission.requests == service.admission.body_bytes == 0


async def test_who_leaves_in_the_middle_leaves_nothing(service: Service) -> None:
    """Neither bytes nor a request are counted for a client that is gone."""
    connection = await learned(service)
    connection.send(APPEND[:5000])
    assert service.admission.body_bytes == len(BATCH)
    assert isinstance(connection.wire.receiver, BodyReceiver)
    connection.wire.receiver.connection_lost(None)
    assert service.admission.requests == service.admission.body_bytes == 0
    assert len(bodies_in(log_of(service))) == 1


async def test_a_connection_hears_of_a_slow_client_meanwhile(service: Service) -> None:
    """That the client takes nothing is for the connection to know, whoever receives."""
    connection = await learned(service)
    connection.send(APPEND[:5000])
    receiver = connection.wire.receiver
    assert isinstance(receiver, BodyReceiver)
    seen = []
    for told in (receiver.pause_writing, receiver.resume_writing):
        told()
        seen.append(connection.protocol.flow.write_paused)
    assert seen == [True, False]
    connection.send(APPEND[5000:])
    assert (await connection.answer()).status == 201


async def test_a_body_that_has_to_wait_is_appended_as_it_was_sent(service: Service) -> None:
    """A roll belongs on a worker: there the same buffer is looked at anew, and nothing is in it."""
    connection = await learned(service)
    log = log_of(service)
    log.maintenance.update_config(replace(log.config, segment_bytes=len(BATCH) + 100))
    for _ in range(2):
        connection.send(APPEND[:5000])
        connection.send(APPEND[5000:])
        assert (await connection.answer()).status == 201
    assert log.reader.segments_count == 3
    assert log.watermarks.log_end_offset == 3 * 90


async def test_a_large_body_is_held_once(service: Service) -> None:
    """While it comes there is one buffer for it, however many pieces it comes in."""
    connection = await learned(service)
    connection.send(APPEND[:HEAD_BYTES])
    view = memoryview(APPEND)
    tracemalloc.start()
    try:
        for start in range(HEAD_BYTES, len(APPEND) - 1000, 1000):
            connection.send(view[start : start + 1000])  # type: ignore[arg-type]  # as good as bytes
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024
    finally:
        tracemalloc.stop()
    connection.hang_up()


LINES = b'{"value":1}\n' * 8_000
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        (BATCHES, BATCH, RAW, 201),
        (BATCHES, BATCH[:-1] + b"?", RAW, 422),
        (RECORDS, LINES, NDJSON, 201),
        (RECORDS, LINES + b"?", NDJSON, 400),
    ],
)
async def test_an_idle_connection_holds_no_body(
    service: Service, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    """What a request brought goes with its answer, and not with the next request."""
    append = request("POST", f"{path}?acks=1", body, headers)
    connection = await learned(service)
    connection.send(request("GET", RECORDS))
    assert (await connection.answer()).status == 200
    tracemalloc.start()
    try:
        connection.send(append[:500])
        connection.send(append[500:])
        assert (await connection.answer()).status == status
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < len(body) // 2
    finally:
        tracemalloc.stop()
    connection.hang_up()


def test_it_is_the_same_over_sockets(tmp_path: Path) -> None:
    """The event loop in use gives the body to its receiver and the rest to the parser."""
    with serving(tmp_path) as served:
        httpx.put(f"{served.url}/v1/topics/events", json={}).raise_for_status()
        httpx.get(f"{served.url}{RECORDS}").raise_for_status()
        httpx.get(f"{served.url}{BATCHES}").raise_for_status()
        address = urlsplit(served.url)
        with socket.create_connection((address.hostname or "", address.port or 0)) as client:
            answers = client.makefile("rb")
            for cut in (0, HEAD_BYTES, HEAD_BYTES + 1, HEAD_BYTES + 40_000):
                client.sendall(APPEND[:cut])
                client.sendall(APPEND[cut:])
                assert answers.readline() == b"HTTP/1.1 201 Created\r\n"
                length = 0
                while (line := answers.readline()) != b"\r\n":
                    name, _, value = line.partition(b":")
                    length = int(value) if name == b"content-length" else length
                answers.read(length)
        log = log_of(served.service)
        assert bodies_in(log) == [BATCH[16:]] * 4


async def test_bodies_of_several_clients_do_not_mix(service: Service) -> None:
    """Each connection has a receiver of its own, and they may take turns."""
    connections = [await learned(service)]
    listener = Listener(service)
    connections += [listener.connect() for _ in range(2)]
    for start in range(0, len(APPEND), 10_000):
        for connection in connections:
            connection.send(APPEND[start : start + 10_000])
    replies = await asyncio.gather(*(connection.answer() for connection in connections))
    assert {reply.status for reply in replies} == {201}
    assert bodies_in(log_of(service)) == [BATCH[16:]] * 4
