"""Clients that take nothing: what waits for them is bounded in size, and in time."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.operations.service import Service
from tests.support.raw import rest_of, until
from tests.support.server import serving
from tests.support.service import BATCHES, OFFSETS, RECORDS, open_service
from tests.support.wire import Connection, Listener, request

pytestmark = pytest.mark.anyio

VALUE = "x" * 900_000


@pytest.fixture
async def service(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Service]:
    """An open service that gives up on clients soon."""
    async with open_service(tmp_path, send_timeout_ms=20) as service:
        yield service


async def closed(connection: Connection) -> None:
    """Return when the server has ended the connection, or 20 s are over."""
    while not connection.wire.is_closing():
        await connection.wire.next_write()


def test_who_takes_nothing_of_an_answer_loses_it(tmp_path: Path) -> None:
    """After `send_timeout_ms` the connection is cut, and the memory of the answer is free (E9)."""
    with serving(tmp_path, send_timeout_ms=200) as served:
        httpx.put(f"{served.url}/v1/topics/events", json={})
        for _ in range(7):
            body = {"records": [{"value": VALUE}]}
            httpx.post(f"{served.url}{RECORDS}", json=body).raise_for_status()
        held = served.service.admission
        host, _, port = served.url.removeprefix("http://").partition(":")
        with socket.socket() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            wire.settimeout(60)
            wire.connect((host, int(port)))
            path = f"{BATCHES}?offset=0&max_bytes=20000000".encode()
            wire.sendall(b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % path)
            until(lambda: held.answer_bytes > 5_000_000)
            until(lambda: held.answer_bytes == 0)
            try:
                taken = len(rest_of(wire))
            except ConnectionError:
                taken = 0
        assert taken < 5_000_000


async def test_who_takes_little_is_not_cut_off(service: Service) -> None:
    """As long as something of it leaves the answer is sent on, however slowly."""
    connection = Listener(service).connect()
    connection.wire.unsent_bytes = 500
    connection.protocol.pause_writing()
    for left in (400, 300):
        connection.wire.unsent_bytes = left
        await connection.wire.next_write()  # the server looked
        assert not connection.wire.is_aborted
    connection.protocol.resume_writing()
    connection.protocol.pause_writing()  # a new answer, a new look
    assert not connection.wire.is_aborted
    await closed(connection)
    assert connection.wire.is_aborted


async def test_a_closed_connection_is_not_kept_for_what_was_not_taken(service: Service) -> None:
    """A client that never takes its last answer does not keep the connection half closed."""
    connection = Listener(service).connect()
    connection.wire.unsent_bytes = 500
    connection.send(request("GET", OFFSETS, headers={"connection": "close"}))
    await connection.answer()
    while not connection.wire.is_aborted:
        await connection.wire.next_write()
