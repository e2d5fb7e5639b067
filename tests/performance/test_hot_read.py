"""What one read over HTTP may cost: calls, bytes and objects are counted, time is not."""

import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.operations.service import Service
from engine.segment.file_records import WALK_CHUNK_BYTES
from tests.support.builders import DATA, SMALL_INDEXES, new_batch, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.service import BATCHES, RECORDS, log_of, open_service
from tests.support.watched import Asked, WatchedFileSystem
from tests.support.wire import Connection, Listener, request, turn

pytestmark = pytest.mark.anyio

KIB = 1024
POLLS = 100


@pytest.fixture
async def fs() -> WatchedFileSystem:
    """A disk in memory: on a real one the kernel may say "not now" of bytes that are cached."""
    return WatchedFileSystem(with_data(ForgetfulDisk()))


@pytest.fixture
async def service(fs: WatchedFileSystem) -> AsyncIterator[Service]:
    """An open service whose disk is watched."""
    async with open_service(DATA, fs=fs, default_topic_config=dict(SMALL_INDEXES)) as service:
        yield service


def mine(fs: WatchedFileSystem) -> list[Asked]:
    """What the event loop has asked for; threads in the background have their own business."""
    return fs.asked_by(threading.get_ident())


async def listening(service: Service) -> Listener:
    """A listener whose service has met the paths of the new topic `events`."""
    listener = Listener(service)
    connection = listener.connect()
    for setting_up in (request("PUT", "/v1/topics/events", b"{}"), request("GET", RECORDS)):
        connection.send(setting_up)
        assert (await connection.answer()).status in {200, 201}
    return listener


def fill(service: Service, batch: bytearray, count: int = 1) -> int:
    """Commit so many copies of a batch; return the bytes of the log."""
    log = log_of(service)
    for _ in range(count):
        log.append(bytearray(batch))
    log.durability.commit()
    return log.reader.size_bytes


async def read(connection: Connection, target: str) -> None:
    connection.send(request("GET", target))
    assert (await connection.answer()).status == 200
    connection.wire.writes.clear()
    connection._taken = 0  # noqa: SLF001  # what was answered is forgotten: only the server may hold
    await turn()  # who asks in the same turn shares what was found


def calls(fs: WatchedFileSystem) -> list[str]:
    """What was read of the log; at most two blocks of its index led there."""
    names = [asked.name for asked in mine(fs)]
    assert names.count("file.load") <= 2
    return [name for name in names if name != "file.load"]


@pytest.mark.parametrize("path", [RECORDS, BATCHES])
async def test_a_read_is_two_calls(service: Service, fs: WatchedFileSystem, path: str) -> None:
    """The first batch is looked for, and what fits from there on is read once."""
    connection = (await listening(service)).connect()
    size_bytes = fill(service, new_batch(20, value=b'"%b"' % (b"x" * 1000)))
    await read(connection, path)
    fs.asked.clear()
    await read(connection, path)
    assert calls(fs) == ["file.read_cached"] * 2
    assert sum(asked.size_bytes for asked in mine(fs)) <= size_bytes + 2 * WALK_CHUNK_BYTES


async def test_a_reader_at_the_end_asks_the_disk_nothing(
    service: Service, fs: WatchedFileSystem
) -> None:
    """Whether there is more is known without a look at any file, however many wait for it."""
    listener = await listening(service)
    fill(service, new_batch(1, value=b"1"))
    fs.asked.clear()
    for _ in range(POLLS):
        listener.connect().send(request("GET", f"{RECORDS}?offset=1&max_wait_ms=60000"))
    assert service.tail.waiting == POLLS
    assert mine(fs) == []
    fill(service, new_batch(1, value=b"2"))
    fs.asked.clear()
    service.tail.wake(log_of(service))
    assert service.tail.waiting == 0
    assert calls(fs) == ["file.read_cached"] * 2


async def test_a_raw_read_holds_its_bytes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the page cache into one buffer, and from there to the transport piece by piece."""
    async with open_service(tmp_path) as service:
        connection = (await listening(service)).connect()
        size_bytes = fill(service, new_batch(100, value=b"x" * 1000), count=80)
        sent: list[int] = []
        monkeypatch.setattr(connection.wire, "write", lambda data: sent.append(len(data)))
        monkeypatch.setattr(
            connection.wire, "writelines", lambda all_of: sent.extend(map(len, all_of))
        )
        tracemalloc.start()
        try:
            connection.send(request("GET", f"{BATCHES}?max_bytes={2 * size_bytes}"))
            while connection.has_tasks:
                await turn()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert sum(sent) > size_bytes
    assert peak < size_bytes + 64 * KIB


async def test_who_waits_takes_little(service: Service) -> None:
    """A sleeping poll is not a task: only its request and one timer are kept."""
    listener = await listening(service)
    connections = [listener.connect() for _ in range(POLLS)]
    tracemalloc.start()
    try:
        for connection in connections:
            connection.send(request("GET", f"{RECORDS}?offset=0&max_wait_ms=60000"))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert service.tail.waiting == POLLS
    assert not any(connection.has_tasks for connection in connections)
    assert taken < POLLS * 4 * KIB


async def test_reads_leave_nothing_behind(service: Service, fs: WatchedFileSystem) -> None:
    """After hundreds of them as many objects are alive as before."""
    connection = (await listening(service)).connect()
    fill(service, new_batch(20, value=b'{"a":1}'))
    blocks = []
    for _ in range(2):
        for _ in range(200):
            await read(connection, RECORDS)
        fs.asked.clear()
        blocks.append(sys.getallocatedblocks())
    assert blocks[1] - blocks[0] < 100
