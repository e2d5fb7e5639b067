"""A slow disk: appends wait for it, other requests do not, and no queue grows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.operations.service import Service
from tests.support.builders import DATA, with_data
from tests.support.service import RECORDS, open_service
from tests.support.wire import Connection, Listener, Reply, request
from tests.support.wired_client import wired
from tests.unit.engine.background.listeners import SlowDisk

pytestmark = pytest.mark.anyio

LIMIT = 9
APPEND = request("POST", RECORDS, b'{"records":[{"value":1}]}')
READ = request("GET", f"{RECORDS}?offset=0")


def new_disk() -> SlowDisk:
    """A disk that is fast as yet, and holds the data directory."""
    return with_data(SlowDisk())


async def asked(listener: Listener, sent: bytes) -> Reply:
    """The answer to one request on a connection of its own."""
    connection = listener.connect()
    reply = await connection.ask(sent)
    connection.hang_up()
    return reply


async def seen(listener: Listener) -> tuple[int, int]:
    """The number of visible records, and the reported high watermark."""
    reply = await asked(listener, READ)
    page = json.loads(reply.body)
    return len(page["records"]), page["high_watermark"]


def waiting(listener: Listener, service: Service, count: int) -> list[Connection]:
    """Send appends that the disk holds up; all of them were let in."""
    connections = [listener.connect() for _ in range(count)]
    before = service.admission.requests
    for connection in connections:
        connection.send(APPEND)
    assert service.admission.requests == before + count
    assert [connection.written for connection in connections] == [b""] * count
    return connections


@asynccontextmanager
async def slowed_down() -> AsyncIterator[tuple[Service, Listener, SlowDisk]]:
    """A service with one record, whose disk has become slow."""
    disk = new_disk()
    async with open_service(
        DATA, fs=disk, max_in_flight_requests=LIMIT, max_share_percent=100
    ) as service:
        async with wired(service) as client:
            assert (await client.put("/v1/topics/events", json={})).status_code == 201
        listener = Listener(service)
        assert (await asked(listener, APPEND)).status == 201
        disk.is_slow = True
        yield service, listener, disk


async def test_a_slow_disk_holds_up_whoever_waits_for_it_and_refuses_what_is_too_much() -> None:
    """Appends wait unseen up to the limit, beyond it 503; as soon as it syncs all goes on."""
    async with slowed_down() as (service, listener, disk):
        connections = waiting(listener, service, LIMIT - 1)
        await asyncio.to_thread(disk.wait_for_sync)
        assert await seen(listener) == (1, 1), "what is not on the disk was shown"
        connections += waiting(listener, service, 1)
        for sent in (APPEND, READ):
            refused = await asked(listener, sent)
            assert refused.status == 503
            assert dict(refused.headers)[b"retry-after"] == b"1"
        assert service.admission.requests == LIMIT
        assert service.admission.body_bytes <= LIMIT * len(APPEND)
        disk.is_slow = False
        disk.let_through()
        answers = [await connection.answer() for connection in connections]
        assert [answer.status for answer in answers] == [201] * LIMIT
        assert service.admission.requests == 0
        assert await seen(listener) == (1 + LIMIT, 1 + LIMIT)
        assert (await asked(listener, APPEND)).status == 201


async def test_who_hangs_up_while_the_disk_is_slow_counts_until_it_has_synced() -> None:
    """The append stays, and is visible once it is on disk.

    Until then it counts against the limit.
    """
    async with slowed_down() as (service, listener, disk):
        connections = waiting(listener, service, LIMIT)
        await asyncio.to_thread(disk.wait_for_sync)
        for connection in connections[1:]:
            connection.hang_up()
        assert (await asked(listener, APPEND)).status == 503
        disk.is_slow = False
        disk.let_through()
        assert (await connections[0].answer()).status == 201
        assert service.admission.requests == 0
        assert await seen(listener) == (1 + LIMIT, 1 + LIMIT)
