"""What one append over HTTP may cost the system: calls are counted, time is not."""

import asyncio

import pytest

from tests.support.builders import DATA, SMALL_INDEXES, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.service import OFFSETS, RECORDS, open_service
from tests.support.wire import Listener, request

pytestmark = pytest.mark.anyio

APPEND = request("POST", RECORDS, b'{"records":[{"key":"k","value":{"a":1}}]}')
CLIENTS = 16


async def test_appends_of_one_turn_share_one_write_and_one_sync() -> None:
    """Sixteen clients: one write of the disk for all of them, one sync, and an answer each."""
    disk = with_data(ForgetfulDisk())
    async with open_service(DATA, fs=disk, default_topic_config=dict(SMALL_INDEXES)) as service:
        listener = Listener(service)
        first = listener.connect()
        for setting_up in (request("PUT", "/v1/topics/events", b"{}"), request("GET", OFFSETS)):
            first.send(setting_up)
            await first.answer()
        first.send(request("GET", RECORDS))  # so that the path is known
        await first.answer()
        for is_first in (True, False):  # the first of them opens what is opened once, on workers
            clients = [listener.connect() for _ in range(CLIENTS)]
            before = len(disk.changes)
            for client in clients:
                client.send(APPEND)
            assert is_first or not any(client.has_tasks for client in clients)
            replies = await asyncio.gather(*(client.answer() for client in clients))
            assert {reply.status for reply in replies} == {201}
        assert [len(client.wire.writes) for client in clients] == [1] * CLIENTS
        changes = [change.name for change in disk.changes[before:]]
        assert changes == ["append", "sync"]
