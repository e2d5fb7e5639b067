"""One client tries to use up a resource: the others still get their share."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from app.operations.service import Service
from tests.support.credentials import bearer, create_key
from tests.support.service import RECORDS, open_service
from tests.support.wire import Connection, Listener, request

pytestmark = pytest.mark.anyio

ALL = ("read:*", "append:*", "admin:*")
BODY = b'{"records":[{"value":1}]}'
JSON = {"content-type": "application/json"}
STALLED = request("POST", RECORDS, BODY.rjust(30_000), JSON)[:-1]
POLL = request("GET", f"{RECORDS}?offset=latest&max_wait_ms=60000")
TAIL = request("GET", RECORDS.replace("records", "tail"))
APPEND = request("POST", f"{RECORDS}?acks=1", BODY, JSON)
LIMITS: dict[str, Any] = {
    "max_in_flight_requests": 8,
    "max_in_flight_bytes": 240_000,
    "max_waiting_readers": 8,
    "max_tails": 8,
}


class Clients:
    """Clients of one service, each with its own key or address."""

    def __init__(self, service: Service, keys: list[str], *, is_hot: bool) -> None:
        self._service = service
        self._listener = Listener(service)
        self._keys = keys
        self._is_hot = is_hot

    def send(self, number: int, asked: bytes) -> Connection:
        """Send a request over a new connection of one client."""
        connection = self._listener.connect()
        connection.protocol.client = (f"192.0.2.{number}", 4711)
        headers = bearer(self._keys[number]) if self._keys else {}
        for name, value in headers.items():
            asked = asked.replace(b"\r\n", f"\r\n{name}: {value}\r\n".encode(), 1)
        if not self._is_hot:  # only FastAPI's routes know this spelling of a topic
            asked = asked.replace(b"/events/", b"/event%73/")
        connection.send(asked)
        return connection

    async def refusal_of(self, number: int, asked: bytes) -> bytes:
        """Return the error of a request, nothing once it has what it asked for."""
        admission = self._service.admission
        before = (admission.body_bytes, admission.waiting_readers, admission.tails)
        connection = self.send(number, asked)
        while (admission.body_bytes, admission.waiting_readers, admission.tails) == before:
            if connection.written:
                return connection.written
            await checkpoint()
        return b""


@pytest.mark.parametrize("is_hot", [True, False], ids=["hot", "routes"])
@pytest.mark.parametrize("attack", [STALLED, POLL, TAIL], ids=["bodies", "polls", "tails"])
@pytest.mark.parametrize("is_keyed", [True, False], ids=["keys", "addresses"])
async def test_one_client_cannot_take_all(
    tmp_path: Path, *, attack: bytes, is_keyed: bool, is_hot: bool
) -> None:
    """It gets half, the rest is 503, and another key or address is served normally."""
    names = ("greedy", "greedy too", "other") if is_keyed else ()
    keys = [create_key(tmp_path, name.replace(" ", "-"), *ALL) for name in names]
    async with open_service(tmp_path, **LIMITS) as service:
        clients = Clients(service, keys, is_hot=is_hot)
        made = clients.send(2, request("PUT", "/v1/topics/events", b"{}", JSON))
        assert (await made.answer()).status == 201
        for number, due in ((0, 4), (1, 2)):
            count = 0
            while not (refused := await clients.refusal_of(number, attack)):
                count += 1
            assert refused.startswith(b"HTTP/1.1 503")
            assert b'"limit":"max_share_percent"' in refused
            assert count == due
        assert (await clients.send(2, APPEND).answer()).status == 201
        assert not await clients.refusal_of(2, attack)


async def test_one_key_cannot_keep_the_write_workers(tmp_path: Path) -> None:
    """Its appends wait in a queue of their own: another key's is next, whichever lane it takes."""
    keys = [create_key(tmp_path, name, *ALL) for name in ("greedy", "other")]
    begun, is_open = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert is_open.wait(20)

    async with open_service(tmp_path, write_threads=1, inline_append_bytes=0) as service:
        hot, routes = (Clients(service, keys, is_hot=is_hot) for is_hot in (True, False))
        made = hot.send(0, request("PUT", "/v1/topics/events", b"{}", JSON))
        assert (await made.answer()).status == 201
        holding = asyncio.ensure_future(service.workers.write(hold))
        await asyncio.to_thread(begun.wait)
        greedy = [lane.send(0, APPEND) for lane in (hot, routes) for _ in range(3)]
        other = [lane.send(1, APPEND) for lane in (hot, routes)]
        while service.admission.requests < 8:
            await checkpoint()
        for _ in range(100):  # each is handed in some turns after it was let in
            await checkpoint()
        is_open.set()
        await holding
        ends = [json.loads((await one.answer()).body)["base_offset"] for one in other]
        assert sorted(ends) == [1, 3]
        for one in greedy:
            assert (await one.answer()).status == 201
