"""Answers below ASGI that are larger than a connection takes at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.operations.service import Service
from tests.http.test_hot_reads import LARGE, LOOK, commit, is_idle, knowing
from tests.support.service import BATCHES, RECORDS, open_in_memory
from tests.support.wire import Connection, request, turn

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(anyio_backend: str) -> AsyncIterator[Service]:
    """An open service with the topic `events`, whose answers above 4 KiB are made by workers."""
    async with open_in_memory() as service:
        yield service


def commit_large(service: Service) -> None:
    """Commit what goes out in four pieces."""
    for _ in range(4):
        commit(service, LARGE)


def take_nothing(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the transport full after each write, until the test releases it."""
    real = connection.wire.write

    def write(data: bytes | bytearray | memoryview) -> None:
        real(data)
        connection.protocol.pause_writing()

    monkeypatch.setattr(connection.wire, "write", write)


@pytest.mark.parametrize("path", [RECORDS, BATCHES])
async def test_a_large_answer_goes_out_as_fast_as_it_is_taken(
    service: Service, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The next piece is handed to the transport when it has room, and nothing is lost."""
    connection = (await knowing(service)).connect()
    commit_large(service)
    take_nothing(connection, monkeypatch)
    connection.send(request("GET", f"{path}?max_bytes=4000000"))
    for pieces in range(1, 5):
        await connection.wire.next_write()
        assert len(connection.wire.writes) == pieces
        assert not connection.protocol.cycle.response_complete
        connection.protocol.resume_writing()
    reply = await connection.answer()
    assert (reply.status, len(reply.body)) == (200, reply.body_bytes)
    await turn()
    assert is_idle(service)


async def test_a_disconnect_ends_a_large_response(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the response is dropped, and its memory freed."""
    connection = (await knowing(service)).connect()
    commit_large(service)
    take_nothing(connection, monkeypatch)
    connection.send(request("GET", f"{BATCHES}?max_bytes=4000000"))
    await connection.wire.next_write()
    tasks = list(connection.protocol.tasks)
    connection.hang_up()
    await asyncio.gather(*tasks)
    assert len(connection.wire.writes) == 1
    assert is_idle(service)


async def test_a_full_connection_is_left_to_asgi(service: Service) -> None:
    """Where the answer before has not left yet, the next one waits for it."""
    connection = (await knowing(service)).connect()
    connection.protocol.pause_writing()
    connection.send(LOOK)
    assert connection.has_tasks
    connection.protocol.resume_writing()
    assert (await connection.answer()).status == 200


async def test_a_large_answer_may_be_the_last(service: Service) -> None:
    """A stopping server says so in the head, and closes after the body."""
    connection = (await knowing(service)).connect()
    commit_large(service)
    connection.send(request("GET", f"{RECORDS}?max_bytes=4000000"))
    connection.protocol.shutdown()
    reply = await connection.answer()
    assert dict(reply.headers)[b"connection"] == b"close"
    await turn()
    assert connection.wire.is_closing()
