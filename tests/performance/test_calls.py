"""What a hot request costs in functions written in Python: they are counted, time is not."""

from collections.abc import AsyncIterator

import pytest

from app.operations.service import Service
from tests.support.builders import DATA, SMALL_INDEXES, new_batch, with_data
from tests.support.counting import counted, is_ours
from tests.support.filesystem import ForgetfulDisk
from tests.support.service import BATCHES, OFFSETS, RAW, RECORDS, open_in_memory, open_service
from tests.support.time import OF_ANY_YEAR
from tests.support.wire import Connection, Listener, request, turn

pytestmark = pytest.mark.anyio

ROUNDS = 5


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """An open service on an in-memory disk, whose watchers and flusher only run on request."""
    disk = with_data(ForgetfulDisk())
    config = {**SMALL_INDEXES, **OF_ANY_YEAR, "index.interval.bytes": "100000000"}
    async with open_service(
        DATA, fs=disk, default_topic_config=config, commit_interval_ms=600_000
    ) as service:
        yield service


async def prepared(service: Service) -> Connection:
    """A connection to a topic with one committed batch, whose paths are known."""
    connection = Listener(service).connect()
    for setting_up in (
        request("PUT", "/v1/topics/events", b"{}"),
        request("GET", RECORDS),
        request("POST", BATCHES, bytes(new_batch(2, value=b'{"a":1}')), RAW),
    ):
        connection.send(setting_up)
        assert (await connection.answer()).status in {200, 201}
    return connection


async def calls_for(connection: Connection, pieces: list[bytes]) -> int:
    """The least number of calls until a request that came in these pieces is answered."""
    counts = []
    for _ in range(ROUNDS):
        connection.wire.writes.clear()
        connection._taken = 0  # noqa: SLF001  # what was answered is forgotten
        with counted(is_ours) as calls:
            for piece in pieces:
                connection.send(piece)
            await turn()
        assert connection.written.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201"))
        counts.append(calls.count)
    return min(counts[1:])  # the first one fills caches


ONE = b'{"records":[{"key":"k","value":{"a":1}}]}'

HOT = {
    "a record": ([request("POST", f"{RECORDS}?acks=1", ONE)], 105),
    "offsets": ([request("GET", OFFSETS)], 72),
    "a raw read": ([request("GET", f"{BATCHES}?offset=0&max_bytes=1000")], 160),
    "a read": ([request("GET", f"{RECORDS}?offset=0&max_bytes=1000")], 196),
}


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_request_is_so_many_calls(service: Service, name: str) -> None:
    """Raising a bound needs a reason; lower it when a request needs fewer calls."""
    pieces, most = HOT[name]
    connection = await prepared(service)
    calls = await calls_for(connection, pieces)
    assert 0 < calls <= most


@pytest.mark.parametrize("name", ["crc32c", "parse_header"])
async def test_a_read_verifies_and_parses_each_batch_once(service: Service, name: str) -> None:
    """What the engine has verified is rendered as it is; two headers lead to the first batch."""
    connection = await prepared(service)
    for _ in range(7):
        connection.send(request("POST", RECORDS, ONE))
        assert (await connection.answer()).status == 201
    with counted(lambda code: code.co_qualname == name and is_ours(code)) as calls:
        connection.send(request("GET", f"{RECORDS}?offset=2&max_bytes=10000"))
        page = await connection.answer()
    assert page.body.count(b'"offset"') == 7
    assert calls.count == 7 + 2 * (name == "parse_header")


async def test_a_raw_batch_costs_the_same_however_large_it_is(service: Service) -> None:
    """Records of one shape are proved by columns, and pieces of a body are only counted."""
    connection = await prepared(service)
    costs = {}
    for records in (1_000, 100, 1_000):  # a length that changes is known from the second one on
        batch = bytes(new_batch(records, value=b"x" * 100))
        costs[records] = await calls_for(
            connection, [request("POST", f"{BATCHES}?acks=1", batch, RAW)]
        )
    assert costs[1_000] == costs[100] <= 315


async def test_a_small_append_passes_few_files_and_functions() -> None:
    """From the socket to `fdatasync` and back, all threads: who needs fewer lowers the bound."""
    with counted(lambda code: is_ours(code) and code.co_filename != "<string>") as calls:
        async with open_in_memory() as service:
            connection = await prepared(service)
            for _ in range(ROUNDS):
                calls.called.clear()
                connection.send(request("POST", RECORDS, ONE))
                assert (await connection.answer()).status == 201
            called = calls.called.copy()
    assert len({code.co_filename for code in called}) <= 34
    assert len(called) <= 118
