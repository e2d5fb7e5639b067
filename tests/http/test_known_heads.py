"""Known heads: not parsed again, and never mistaken for other requests."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from app.operations.service import Service
from app.wire import known_heads
from app.wire.hot_request import HotOperation, HotOperations
from engine.records.batch import BatchView
from engine.types import FetchIsolation
from tests.support.credentials import create_key
from tests.support.service import BATCHES, RECORDS, local, log_of, open_service
from tests.support.wire import Connection, Listener, request, turn

pytestmark = pytest.mark.anyio

SECRET, OTHER = "a long random text", "another long random text"
JSON = {"content-type": "application/json"}


def signature_of(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, "sha256").hexdigest()


def body_of(value: int) -> bytes:
    return b'{"records":[{"value":%d}]}' % value


def append_of(value: int, **headers: str) -> bytes:
    return request("POST", f"{RECORDS}?acks=1", body_of(value), {**JSON, **headers})


APPEND = append_of(10)


class CountingParser:
    """A parser that counts its calls."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self.fed = 0

    def feed_data(self, data: bytes) -> None:
        self.fed += 1
        self._parser.feed_data(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def counted(connection: Connection) -> CountingParser:
    """Count the calls of a connection's parser from now on."""
    parser = CountingParser(connection.protocol.parser)
    connection.protocol.parser = cast("Any", parser)
    return parser


@pytest.fixture
async def service(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Service]:
    """An open service."""
    async with open_service(tmp_path, commit_interval_ms=600_000) as service:
        yield service


async def learned(service: Service, listener: Listener | None = None) -> Connection:
    """A connection whose service has met the topic `events`, its paths, and one append."""
    connection = (listener or Listener(service)).connect()
    connection.send(request("PUT", "/v1/topics/events", b"{}"))
    assert (await connection.answer()).status == 201
    for path in (RECORDS, BATCHES):
        connection.send(request("GET", path))
        assert (await connection.answer()).status == 200
    connection.send(APPEND)
    assert (await connection.answer()).status == 201
    return connection


def batches_of(service: Service) -> Iterator[BatchView]:
    fetched = log_of(service).reader.read(0, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END)
    assert fetched is not None
    view = memoryview(fetched.data)
    while view:
        batch = BatchView(view)
        yield batch
        view = view[batch.header.size_bytes :]


def values_of(service: Service) -> list[int]:
    """The values in the log but for the first, which `learned` appended."""
    records = [record for batch in batches_of(service) for record in batch.records()]
    return [int(record.value or b"-1") for record in records[1:]]


async def test_a_head_that_came_before_is_not_parsed_again(service: Service) -> None:
    """Neither on its connection nor on another; what follows it is this request's body."""
    listener = Listener(service)
    first = await learned(service, listener)
    for connection in (first, listener.connect()):
        parser = counted(connection)
        for value in (11, 12):
            connection.send(append_of(value))
            assert (await connection.answer()).status == 201
        assert parser.fed == 0
        assert not connection.has_tasks
    assert values_of(service) == [11, 12, 11, 12]
    assert service.admission.requests == service.admission.body_bytes == 0


async def test_the_parser_goes_on_where_it_stood(service: Service) -> None:
    """Requests that it must parse and cached ones may alternate."""
    connection = await learned(service)
    parser = counted(connection)
    for value in (11, 12, 13):
        connection.send(append_of(value))
        assert (await connection.answer()).status == 201
        connection.send(request("GET", RECORDS))
        assert (await connection.answer()).status == 200
    assert parser.fed == 3
    assert values_of(service) == [11, 12, 13]


STREAM = b"".join(append_of(value) for value in (11, 12, 13))
HEAD_BYTES = len(APPEND) - len(body_of(10))
CUTS = sorted(
    {
        place
        for edge in range(0, len(STREAM) + 1, len(APPEND))
        for near in (edge, edge + HEAD_BYTES)
        for place in range(near - 5, near + 6)
        if 0 <= place <= len(STREAM)
    }
)


async def test_wherever_a_stream_is_cut_it_is_the_same_requests(service: Service) -> None:
    """Around every edge of head and body, in two reads: each request once, in order."""
    connection = await learned(service)
    for cut in CUTS:
        for piece in (STREAM[:cut], STREAM[cut:]):
            if piece:
                connection.send(piece)
        for _ in range(3):
            assert (await connection.answer()).status == 201
    assert values_of(service) == [11, 12, 13] * len(CUTS)


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n" + append_of(11),
        append_of(11, cookie="c" * known_heads.MAX_KNOWN_HEAD_BYTES),
    ],
    ids=["leading line", "long"],
)
async def test_what_is_not_one_plain_head_is_parsed_each_time(
    service: Service, sent: bytes
) -> None:
    """It may be valid all the same, and gets its response."""
    connection = await learned(service)
    parser = counted(connection)
    for _ in range(2):
        connection.send(sent)
        await connection.answer()
    assert parser.fed == 2


@pytest.mark.parametrize(
    "odd",
    [APPEND.replace(b"\r\nhost", b"\nhost", 1), append_of(11, cookie="a\r\n b")],
    ids=["bare line feed", "folded line"],
)
async def test_lines_that_parsers_read_differently_are_no_known_head(
    service: Service, odd: bytes
) -> None:
    """They are refused, even after a valid append with the same head."""
    connection = await learned(service)
    connection.send(odd)
    assert (await connection.answer()).status == 400
    assert values_of(service) == []


async def test_the_body_of_a_refused_request_is_not_parsed_as_a_request(service: Service) -> None:
    """What follows a refused head is its body, even if it looks like an append."""
    connection = await learned(service)
    head = request("POST", f"{RECORDS}?acks=1", b"", {"content-type": "text/plain"})
    length = len(append_of(11))
    connection.send(head.replace(b"content-length: 0", b"content-length: %d" % length))
    assert (await connection.answer()).status == 415
    connection.send(append_of(11))
    await turn()
    assert values_of(service) == []
    connection.send(append_of(12))
    assert (await connection.answer()).status == 201
    assert values_of(service) == [12]


async def test_the_rest_of_a_head_is_no_request(service: Service) -> None:
    """After the beginning of a header line, an append is part of the header's value."""
    connection = await learned(service)
    connection.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-odd: ")
    connection.send(append_of(11))
    await connection.answer()
    assert values_of(service) == []


async def test_a_service_that_stops_says_so_to_those_it_knows(service: Service) -> None:
    """Refusals come from the way in that explains them."""
    connection = await learned(service)
    service.drain()
    connection.send(append_of(11))
    assert (await connection.answer()).status == 503
    assert values_of(service) == []


async def test_a_topic_that_is_gone_is_gone_for_those_it_knows(service: Service) -> None:
    """A cached head is resolved again, and finds the present topic."""
    connection = await learned(service)
    connection.send(request("DELETE", "/v1/topics/events"))
    assert (await connection.answer()).status == 204
    connection.send(append_of(11))
    assert (await connection.answer()).status == 404


async def test_nothing_is_remembered_of_a_refused_request(service: Service, tmp_path: Path) -> None:
    """Callers without a key cannot fill memory with heads that they invent."""
    connection = await learned(service)
    create_key(tmp_path, "root", "append:*")
    await service.security.refresh_keys()
    parser = counted(connection)
    for fed in (1, 2, 3):
        connection.send(append_of(11, **{"x-invented": "1"}))
        assert (await connection.answer()).status == 401
        assert parser.fed == fed


async def test_what_is_remembered_of_heads_is_bounded(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request line beyond the limit takes the place of all others."""
    monkeypatch.setattr(known_heads, "MAX_KNOWN_LINES", 1)
    connection = await learned(service)
    parser = counted(connection)
    other = request("POST", RECORDS, body_of(100), JSON)
    sent = ((append_of(11), 0), (other, 1), (other, 1), (append_of(12), 2), (append_of(13), 2))
    for append, fed in sent:
        connection.send(append)
        assert (await connection.answer()).status == 201
        assert parser.fed == fed
    assert values_of(service) == [11, 100, 100, 12, 13]


async def test_values_that_change_need_no_parser(service: Service) -> None:
    """From the second head on: lengths, trace contexts and ids are found in the bytes."""
    connection = await learned(service)
    parser = counted(connection)
    values = [10**digits for digits in range(1, 5)]
    for value in values:
        connection.send(append_of(value, traceparent=f"00-{value:032}-{'2' * 16}-01"))
        answer = await connection.answer()
        assert answer.status == 201
        assert dict(answer.headers)[b"traceparent"].startswith(b"00-%032d-" % value)
    assert parser.fed == 2
    assert values_of(service) == values


@pytest.mark.parametrize("name", ["X-Key", "X-Copied", "X-Signature"])
async def test_a_value_that_belongs_to_a_record_is_the_one_of_its_request(
    service: Service, name: str
) -> None:
    """A signature header too, if its profile makes it a header of records."""
    connection = Listener(service).connect()
    profile = {
        "key": {"header": "X-Key"},
        "headers": ["X-Copied", "X-Signature"],
        "signature": {"scheme": "hmac", "header": "X-Signature", "secrets": [SECRET, OTHER]},
    }
    connection.send(request("PUT", "/v1/topics/events", b"{}"))
    assert (await connection.answer()).status == 201
    path = "/v1/topics/events/ingest"
    connection.send(request("PUT", f"{path}-profile", json.dumps(profile).encode(), JSON))
    assert (await connection.answer()).status == 201
    parser = counted(connection)
    body = b"{}"
    values = ["a", "b", "c", "d"]
    if name == "X-Signature":
        values = [
            hmac.new(key, body, "sha256").hexdigest() for key in (SECRET.encode(), OTHER.encode())
        ]
        values *= 2
    fixed = {"X-Key": "k", "X-Copied": "c", "X-Signature": signature_of(SECRET, body)}
    for value in values:
        connection.send(request("POST", path, body, {**JSON, **fixed, name: value}))
        assert (await connection.answer()).status == 200
    assert parser.fed == 2
    records = [record for batch in batches_of(service) for record in batch.records()]
    found = [
        {"X-Key": record.key, **{key.title(): held for key, held in record.headers}}[name]
        for record in records
    ]
    assert found == [value.encode() for value in values]


async def test_a_known_head_does_not_admit_a_longer_body_than_the_limit(tmp_path: Path) -> None:
    """A changed length is compared with the limit again."""
    async with open_service(tmp_path, max_request_bytes=100) as service:
        connection = await learned(service)
        for value in (11, 10**9):
            connection.send(append_of(value))
            assert (await connection.answer()).status == 201
        connection.send(append_of(10**80))
        assert (await connection.answer()).status == 413


async def test_nothing_is_begun_on_a_connection_that_closes_even_if_known(
    service: Service,
) -> None:
    """A request that arrives while the connection closes is not appended."""
    connection = await learned(service)
    connection.wire.close()
    connection.send(append_of(11))
    assert values_of(service) == []


async def test_one_timer_watches_an_idle_connection(service: Service) -> None:
    """Responses do not move it; when it fires, it checks how long the connection was idle."""
    connection = await learned(service)
    protocol = connection.protocol
    timer = protocol.timeout_keep_alive_task
    assert timer is not None
    for value in (11, 12, 13):
        connection.send(append_of(value))
        assert (await connection.answer()).status == 201
    assert protocol.timeout_keep_alive_task is timer
    protocol.timeout_keep_alive_handler()  # too early: the last answer is a moment old
    assert not connection.wire.is_closing()
    assert protocol.timeout_keep_alive_task not in {None, timer}
    protocol.timeout_keep_alive = 0
    protocol.timeout_keep_alive_handler()
    assert connection.wire.is_closing()


async def test_a_connection_that_waits_for_the_disk_is_not_idle(service: Service) -> None:
    """The idle timeout of a connection starts again with the response."""
    connection = await learned(service)
    protocol = connection.protocol
    protocol.timeout_keep_alive = 0
    local(service).commits.attach(asyncio.get_running_loop(), lambda: None)
    connection.send(request("POST", RECORDS, body_of(11), JSON))
    protocol.timeout_keep_alive_handler()
    assert not connection.wire.is_closing()
    assert protocol.timeout_keep_alive_task is None
    protocol.timeout_keep_alive = 60
    local(service).commits.attach(asyncio.get_running_loop(), local(service).runtime.committer.wake)
    local(service).runtime.committer.wake()
    assert (await connection.answer()).status == 201
    assert protocol.timeout_keep_alive_task is not None


async def test_a_url_that_is_not_hot_is_parsed_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither way in repeats the parsing of the other."""
    lines: list[bytes] = []

    class Counting(HotOperations):
        def __missing__(self, line: bytes) -> HotOperation | None:
            lines.append(line)
            return super().__missing__(line)

    connection = Listener(service).connect()
    monkeypatch.setattr(connection.protocol._hot_lane, "operations", Counting())  # noqa: SLF001 - counted
    connection.send(request("GET", "/v1/topics"))
    assert (await connection.answer()).status == 200
    assert lines == [b"GET /v1/topics"]
