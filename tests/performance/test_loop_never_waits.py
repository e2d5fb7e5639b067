"""What the event loop may do with the disk.

Bounded writes to the page cache, reads of cached bytes. Everything else may wait for a device or a
lock, and must run on a worker. Each call of the file system is recorded with its thread, so no
stopwatch is needed.
"""

import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.api.application import ALL_ROUTERS
from app.operations.service import Service
from engine.background.committer import LOOK_AFTER
from engine.fs.posix import PosixFileSystem
from engine.log.log import Log
from tests.support.builders import new_batch
from tests.support.service import BATCHES, OFFSETS, RAW, RECORDS, local, log_of, open_service
from tests.support.watched import WatchedFileSystem
from tests.support.wire import Connection, Listener, request, turn

pytestmark = pytest.mark.anyio

ONE = b'{"records":[{"key":"k","value":{"a":1}}]}'
MANY = b"\n".join(b'{"key":"k","value":{"a":%d}}' % number for number in range(200))
AS_JSON = {"content-type": "application/json"}
SEGMENT_BYTES = 400_000
INLINE_BYTES = 128 * 1024

ALLOWED = {
    "file.append",  # into the page cache, of bounded size
    "file.append_many",
    "file.read_cached",  # returns nothing rather than wait
    "file.load",  # 4 KiB of an index, which a look-up near the log end finds in the page cache
    "file.reserve",  # 64 KiB of an index, once for thousands of entries
    "file.store",  # one entry of an index, into the page cache
}


@pytest.fixture
async def fs() -> WatchedFileSystem:
    return WatchedFileSystem(PosixFileSystem())


@pytest.fixture
async def service(tmp_path: Path, fs: WatchedFileSystem) -> AsyncIterator[Service]:
    """An open service whose disk is watched, and whose flusher runs all rounds."""
    async with open_service(tmp_path, fs=fs, max_inline_round_ms=0) as service:
        yield service


async def connected(service: Service) -> Connection:
    """A connection whose service has met the paths of the new topic `events`."""
    connection = Listener(service).connect()
    body = b'{"config":{"segment.bytes":"%d"}}' % SEGMENT_BYTES
    for setting_up in (request("PUT", "/v1/topics/events", body), request("GET", RECORDS)):
        connection.send(setting_up)
        assert (await connection.answer()).status in {200, 201}
    return connection


HOT = {
    "one record": request("POST", RECORDS, ONE),
    "unwaited": request("POST", f"{RECORDS}?acks=1", ONE),
    "many records": request("POST", RECORDS, MANY, {"content-type": "application/x-ndjson"}),
    "over partitions": request("POST", "/v1/topics/events/records", ONE),
    "batches": request("POST", BATCHES, bytes(new_batch(30, value=b"x" * 1000)), RAW),
    "much": request("POST", BATCHES, bytes(new_batch(100, value=b"x" * 2000)), RAW),
    "as JSON": request("GET", f"{RECORDS}?offset=0"),
    "as NDJSON": request("GET", f"{RECORDS}?offset=1", headers={"accept": "application/x-ndjson"}),
    "raw": request("GET", f"{BATCHES}?offset=0&max_bytes=100000"),
    "committed": request("GET", f"{RECORDS}?offset=0&isolation=read_committed"),
    "the end": request("GET", f"{RECORDS}?offset=latest&max_wait_ms=1"),
    "marks": request("GET", OFFSETS),
    "fetch": request("POST", "/v1/fetch", b'{"partitions":[{"topic":"events","partition":0}]}'),
}


async def test_hot_requests_never_wait_for_the_disk(
    service: Service, fs: WatchedFileSystem
) -> None:
    """First appends, appends that roll, reads: the loop opens, makes and syncs nothing."""
    connection = await connected(service)
    loop = threading.get_ident()
    for _ in range(5):
        for name, hot in HOT.items():
            fs.asked.clear()
            connection.send(hot)
            assert (await connection.answer()).status in {200, 201}, name
            asked = fs.asked_by(loop)
            assert {call.name for call in asked} <= ALLOWED, name
            assert sum(call.size_bytes for call in asked if "append" in call.name) <= INLINE_BYTES
    log = log_of(service)
    assert log.reader.segments_count > 2


async def test_a_crowd_of_appends_never_waits_for_the_disk(
    service: Service, fs: WatchedFileSystem
) -> None:
    """Appends that are gathered in one turn of the loop, together more than a segment takes."""
    first = await connected(service)
    listener = Listener(service)
    crowd = [listener.connect() for _ in range(8)]
    fifty_kilobytes = bytes(new_batch(50, value=b"x" * 1000))
    loop = threading.get_ident()
    fs.asked.clear()
    for _ in range(4):
        for connection in crowd:
            connection.send(request("POST", BATCHES, fifty_kilobytes, RAW))
        assert [(await connection.answer()).status for connection in crowd] == [201] * 8
    assert {call.name for call in fs.asked_by(loop)} <= ALLOWED
    assert "file.append" in {call.name for call in fs.asked_by(loop)}
    assert log_of(service).reader.segments_count > 2
    assert not first.has_tasks


async def test_the_loop_makes_only_small_syncs_and_only_while_they_are_quick(
    tmp_path: Path, fs: WatchedFileSystem
) -> None:
    """Only small commits, of one file or with one sync for all; `max_inline_round_ms` bounds it."""
    loop = threading.get_ident()
    async with open_service(tmp_path, fs=fs, max_inline_round_ms=60_000) as service:
        connection = await connected(service)
        for _ in range(2 * LOOK_AFTER):
            connection.send(request("POST", RECORDS, ONE))
            assert (await connection.answer()).status == 201
        asked = {call.name for call in fs.asked_by(loop)} - {"file.load", "file.store"}
        assert asked == {"file.append", "file.sync"}
        before = len(connection.wire.writes)
        connection.send(request("POST", RECORDS, ONE))
        await turn()
        assert len(connection.wire.writes) == before + 1, "answered in its turn of the loop"
        assert (await connection.answer()).status == 201
        fs.asked.clear()
        for hot in HOT.values():
            connection.send(hot)
            assert (await connection.answer()).status in {200, 201}
        assert {call.name for call in fs.asked_by(loop)} <= ALLOWED | {"file.sync"}


async def test_group_offsets_never_wait_for_the_disk(
    service: Service, fs: WatchedFileSystem
) -> None:
    """Their records are appends, too: the first in a segment, and one that deletes."""
    connection = await connected(service)
    loop = threading.get_ident()
    target = "/v1/groups/lake/offsets/events/0"
    for wanted in (b'{"offset":0}', b'{"offset":0,"metadata":"again"}', b""):
        for log in local(service).manager.logs():
            log.roll()
        fs.asked.clear()
        connection.send(request("PUT" if wanted else "DELETE", target, wanted, AS_JSON))
        assert (await connection.answer()).status in {200, 201, 204}
        assert {call.name for call in fs.asked_by(loop)} <= ALLOWED
    connection.send(request("PUT", target, b'{"offset":0}', AS_JSON))
    assert (await connection.answer()).status == 201
    assert "file.append" in {call.name for call in fs.asked_by(loop)}


async def test_the_end_of_a_transaction_never_waits_for_the_disk(
    service: Service, fs: WatchedFileSystem
) -> None:
    """Its marker is an append that rolls, opens an index, and notes what was aborted."""
    connection = await connected(service)
    loop = threading.get_ident()
    log = log_of(service)
    log.append(
        new_batch(1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    log.roll()
    fs.asked.clear()
    body = b'{"producer_id":7,"producer_epoch":0,"action":"abort"}'
    path = "/v1/topics/events/partitions/0/transactions"
    connection.send(request("POST", path, body, AS_JSON))
    assert (await connection.answer()).status == 200
    assert {call.name for call in fs.asked_by(loop)} <= ALLOWED


LOCKED = {
    **HOT,
    "partition": request("GET", "/v1/topics/events/partitions/0"),
    "partitions": request("GET", "/v1/topics/events/partitions"),
    "producers": request("GET", "/v1/topics/events/partitions/0/producers"),
    "segments": request("GET", "/v1/topics/events/partitions/0/segments"),
    "kafka's proxies": request("GET", "/topics/events/partitions/0/offsets"),
    "to a proxy": request(
        "POST",
        "/topics/events/partitions/0",
        b'{"records":[{"value":1}]}',
        {"content-type": "application/vnd.kafka.json.v2+json"},
    ),
    "stream": request(
        "POST", f"{RECORDS}?stream=true", MANY, {"content-type": "application/x-ndjson"}
    ),
    "roll": request("POST", "/v1/topics/events/partitions/0/roll"),
    "group": request("PUT", "/v1/groups/lake/offsets/events/0", b'{"offset":0}', AS_JSON),
    "measures": request("GET", "/metrics"),
}


class Holder:
    """Holds the lock of a log, as a thread that syncs under it, until it is released."""

    def __init__(self, log: Log) -> None:
        self._has_lock = threading.Event()
        self._may_go = threading.Event()
        self.gave_up = False
        threading.Thread(target=self._hold, args=(log,)).start()
        assert self._has_lock.wait(20)

    def _hold(self, log: Log) -> None:
        with log._core.lock:  # noqa: SLF001 - as a truncation holds it
            self._has_lock.set()
            self.gave_up = not self._may_go.wait(5)

    def let_go(self) -> None:
        self._may_go.set()


async def test_no_request_waits_for_a_lock_on_the_loop(service: Service) -> None:
    """A log's lock may be held while a disk works: meanwhile other requests are served."""
    connection, other = await connected(service), Listener(service).connect()
    log = log_of(service)
    for name, asked in LOCKED.items():
        holder = Holder(log)
        connection.send(asked)
        other.send(request("GET", "/livez"))
        assert (await other.answer()).status == 200
        holder.let_go()
        assert (await connection.answer()).status in {200, 201}, name
        assert not holder.gave_up, name


async def test_most_appends_need_no_worker(service: Service, fs: WatchedFileSystem) -> None:
    """What need not wait is written where it was parsed: otherwise the rule above were empty."""
    connection = await connected(service)
    loop = threading.get_ident()
    for _ in range(3):
        connection.send(HOT["one record"])
        assert (await connection.answer()).status == 201
    assert [call.name for call in fs.asked_by(loop)] == ["file.append"] * 2  # after the first


async def test_a_304_reads_nothing_of_the_disk(service: Service, fs: WatchedFileSystem) -> None:
    """A client that has an immutable page gets 304 without a read of the data, on any thread."""
    connection = await connected(service)
    connection.send(HOT["many records"])
    await connection.answer()
    log_id = log_of(service).reader.log_id
    for path in (RECORDS, BATCHES):
        target = f"{path}?offset=0&end_offset=200&log_id={log_id}"
        connection.send(request("GET", target))
        tag = dict((await connection.answer()).headers)[b"etag"].decode()
        fs.asked.clear()
        connection.send(request("GET", target, headers={"if-none-match": tag}))
        assert (await connection.answer()).status == 304
        assert not [asked for asked in fs.asked if "read" in asked.name]


def called_by(dependant: Dependant) -> Iterator[Callable[..., object]]:
    """What FastAPI calls for a route: its dependencies, theirs, and the route itself."""
    for inner in dependant.dependencies:
        yield from called_by(inner)
    if dependant.call is not None:
        yield dependant.call


def test_no_route_asks_a_thread_before_it_lets_a_request_in() -> None:
    """FastAPI runs plain functions on threads: a stop came between a request and its admission."""
    routes = [route for router in ALL_ROUTERS for route in router.routes]
    called = {
        each
        for route in routes
        if isinstance(route, APIRoute)
        for each in called_by(route.dependant)
    }
    assert len(called) > len(routes)
    assert [
        each.__qualname__
        for each in called
        if not inspect.iscoroutinefunction(each) and not inspect.isasyncgenfunction(each)
    ] == []
