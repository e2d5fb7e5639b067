"""The budgets of one request of each hot kind: calls, syncs, writes, memory, copies; no times.

A budget is what the request needs today, with little room; raising one needs a reason.
"""

import os
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.operations.service import Service
from engine.fs import posix
from engine.fs.posix import PosixFileSystem
from tests.support.builders import DATA, SMALL_INDEXES, new_batch, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.service import BATCHES, NDJSON, RAW, RECORDS, log_of, open_service
from tests.support.time import OF_ANY_YEAR
from tests.support.watched import WatchedFileSystem
from tests.support.wire import Connection, Listener, request, turn

pytestmark = pytest.mark.anyio

KIB = 1024
REPEATED = 150
POLLS = 10
RECEIVED_BYTES = 64 * KIB
"""What one read of a socket brings."""

DURABLE = ["file.append", "file.sync"]
INDEXED = ["file.append", "file.store", "file.store", "file.sync"]
"""An entry in each sparse index, once in an index interval."""
FOUND = ["file.read_cached"] * 2
"""The first batch is looked for within an index interval; what fits from there on is read once."""
LOOKED_UP = ["file.load", *FOUND]
"""The same, with what of the index leads there: a map of it would need no call, but an access to
it that the disk cannot serve kills the process."""

ONE = b'{"records":[{"key":"k","value":{"a":1}}]}'
MANY = b"\n".join(b'{"key":"k%d","value":{"a":%d}}' % (n % 9, n) for n in range(1_000))
SMALL = bytes(new_batch(10, value=b"x" * 100))
LARGE = bytes(new_batch(400, value=b"x" * 1_000))


class Budget(NamedTuple):
    """A request, and what it may cost."""

    sent: bytes
    calls: Sequence[str]
    """Of the file system, by whatever thread, in their order."""
    writes: int
    """Of the socket."""
    peak_bytes: int
    """The most memory that it takes at one time, its body and its answer with it."""


BUDGETS = {
    "one record": Budget(request("POST", RECORDS, ONE), DURABLE, 1, 14 * KIB),
    "1,000 records": Budget(request("POST", RECORDS, MANY, NDJSON), INDEXED, 1, 10 * len(MANY)),
    "a small batch": Budget(request("POST", BATCHES, SMALL, RAW), DURABLE, 1, 16 * KIB),
    "a large batch": Budget(
        request("POST", BATCHES, LARGE, RAW),
        [*DURABLE[:1], "file.store", *DURABLE[1:]],
        1,
        17 * len(LARGE) // 8 + 32 * KIB,
    ),
    "a small read": Budget(request("GET", f"{BATCHES}?max_bytes=1000"), LOOKED_UP, 1, 16 * KIB),
    "a small read as JSON": Budget(
        request("GET", f"{RECORDS}?max_bytes=1000"), LOOKED_UP, 1, 24 * KIB
    ),
    "a large read": Budget(
        request("GET", f"{BATCHES}?max_bytes={len(LARGE) + 4 * KIB}"),
        ["file.load", "file.read_cached", "file.load", *FOUND],
        1,
        len(LARGE) + 32 * KIB,
    ),
}


CONFIG = SMALL_INDEXES | OF_ANY_YEAR


async def prepared(service: Service) -> Connection:
    """A connection to a topic with more than a large read, whose paths are known."""
    connection = Listener(service).connect()
    for setting_up in (
        request("PUT", "/v1/topics/events", b"{}"),
        request("GET", RECORDS),
        request("GET", BATCHES),
    ):
        connection.send(setting_up)
        assert (await connection.answer()).status in {200, 201}
    log = log_of(service)
    for batch in (SMALL, LARGE, LARGE, LARGE):
        log.append(bytearray(batch))
    log.durability.commit()
    return connection


def send(connection: Connection, sent: bytes) -> None:
    """Let a request arrive as a socket brings it: its head with the beginning of its body."""
    for start in range(0, len(sent), RECEIVED_BYTES):
        connection.send(sent[start : start + RECEIVED_BYTES])


async def do(connection: Connection, sent: bytes) -> int:
    """Have a request answered; return the number of writes."""
    connection.wire.writes.clear()
    connection._taken = 0  # noqa: SLF001  # what was answered is forgotten
    send(connection, sent)
    assert (await connection.answer()).status in {200, 201}
    await turn()  # who asks in the same turn shares what was found
    return len(connection.wire.writes)


@pytest.mark.parametrize("name", BUDGETS)
async def test_a_request_asks_the_system_for_so_much(name: str) -> None:
    """Each call of the file system, and each write of the socket, is one of the system's."""
    fs = WatchedFileSystem(with_data(ForgetfulDisk()))
    budget = BUDGETS[name]
    async with open_service(DATA, fs=fs, default_topic_config=CONFIG) as service:
        connection = await prepared(service)
        await do(connection, budget.sent)
        fs.asked.clear()
        writes = await do(connection, budget.sent)
        assert [asked.name for asked in fs.asked] == budget.calls
        assert writes == budget.writes


async def peak_of(connection: Connection, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """The most memory held at one time for a request whose response is dropped."""
    with monkeypatch.context() as patch:
        for write in ("write", "writelines"):
            patch.setattr(connection.wire, write, lambda _: None)
        tracemalloc.start()
        try:
            send(connection, sent)
            while not connection.protocol.cycle.response_complete:
                await turn()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("name", BUDGETS)
async def test_a_request_takes_so_much_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large answer is there once, and a large body with what its check looks through.

    The buffer of a body that grows has room for an eighth more.
    """
    budget = BUDGETS[name]
    async with open_service(tmp_path) as service:
        connection = await prepared(service)
        await do(connection, budget.sent)
        peaks = [await peak_of(connection, budget.sent, monkeypatch) for _ in range(3)]
    assert 0 < min(peaks) <= budget.peak_bytes


@pytest.mark.parametrize("name", ["one record", "a small batch"])
async def test_appends_leave_nothing_behind(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After hundreds of them as many objects are alive as before."""
    monkeypatch.setattr(posix, "_sync_data", lambda _: None)  # disks have nothing to do here
    async with open_service(tmp_path) as service:
        connection = await prepared(service)
        kept = []
        for _ in range(3):  # timers of the test's own add to the first
            before = sys.getallocatedblocks()
            for _ in range(REPEATED):
                await do(connection, BUDGETS[name].sent)
            connection.wire.writes.clear()
            kept.append(sys.getallocatedblocks() - before)
    assert min(kept) < REPEATED / 2


async def test_long_polls_are_one_look_and_a_write_each() -> None:
    """What a commit brings is looked up and read once for all who wait for it there."""
    fs = WatchedFileSystem(with_data(ForgetfulDisk()))
    async with open_service(DATA, fs=fs, default_topic_config=CONFIG) as service:
        connection = await prepared(service)
        await do(connection, BUDGETS["one record"].sent)
        listener = Listener(service)
        polls = [listener.connect() for _ in range(POLLS)]
        end_offset = log_of(service).watermarks.high_watermark
        for poll in polls:
            poll.send(request("GET", f"{RECORDS}?offset={end_offset}&max_wait_ms=60000"))
        fs.asked.clear()
        await do(connection, BUDGETS["one record"].sent)
        for poll in polls:
            assert (await poll.answer()).status == 200
        assert [asked.name for asked in fs.asked] == [*DURABLE, *FOUND]
        assert [len(poll.wire.writes) for poll in polls] == [1] * POLLS


def test_a_call_of_the_port_is_one_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is given the caller's own buffers, all of them at once."""
    called: list[tuple[str, Any]] = []
    for name in ("pwrite", "pwritev", "preadv", "pread"):
        real = getattr(os, name)

        def noted(
            number: int, about: object, *more: int, name: str = name, real: Any = real
        ) -> Any:
            called.append((name, about))
            return real(number, about, *more)

        monkeypatch.setattr(os, name, noted)
    monkeypatch.setattr(posix, "_sync_data", lambda _: called.append(("fdatasync", None)))
    with PosixFileSystem().open(tmp_path / "file", create=True) as file:
        one, many = bytearray(b"one"), [bytearray(b"two"), bytearray(b"three")]
        file.append(one)
        file.append_many(many)
        file.sync()
        file.read_at(0, 11)
        cached = file.read_cached(0, 11)
    assert [name for name, _ in called] == ["pwrite", "pwritev", "fdatasync", "pread", "preadv"]
    assert called[0][1] is one
    assert all(given is own for given, own in zip(called[1][1], many, strict=True))
    if cached is not None:  # the system may say "not now" of what is cached
        assert called[4][1][0] is cached
