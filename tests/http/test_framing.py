"""Framing of heads and bodies: trailers, lists in several lines, and their limits."""

import json
import re

import pytest

from app.operations.service import Service
from tests.support.service import OFFSETS, RECORDS, log_of
from tests.support.wire import Connection, Listener, request, turn

pytestmark = pytest.mark.anyio

ONE = b'{"records":[{"value":1}]}'
JSON = {"content-type": "application/json"}
CHUNKED = request("POST", RECORDS, headers=JSON | {"transfer-encoding": "chunked"}).replace(
    b"content-length: 0\r\n", b""
)
LAST_CHUNK = b"%x\r\n%b\r\n0\r\n" % (len(ONE), ONE)
LONG = b'{"records":[{"value":"%b"}]}' % (b"a" * 70_000)
LOOK = request("GET", OFFSETS)
TAIL = "/v1/topics/events/partitions/0/tail"


async def connected(service: Service) -> Connection:
    connection = Listener(service).connect()
    connection.send(request("PUT", "/v1/topics/events", b"{}"))
    assert (await connection.answer()).status == 201
    return connection


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("trailer", [b"expected-offset: 9", b"content-digest: sha-256=:AAAA:"])
async def test_a_trailer_is_no_header(service: Service, trailer: bytes, pieces: int) -> None:
    """A field after the body does not describe it, whether or not both arrive together."""
    connection = await connected(service)
    rest = LAST_CHUNK + trailer + b"\r\n\r\n"
    if pieces == 1:
        connection.send(CHUNKED + rest)
    else:
        connection.send(CHUNKED)
        await turn()
        connection.send(rest)
    assert (await connection.answer()).status == 201


@pytest.mark.parametrize("flood", [b"x: %b\r\n", b"%b"], ids=["many", "one"])
async def test_trailers_have_a_bound(service: Service, flood: bytes) -> None:
    """Trailers have the limit of the headers: 400, nothing is written, the connection is closed."""
    connection = await connected(service)
    connection.send(CHUNKED + LAST_CHUNK + (b"x: " if flood == b"%b" else b""))
    for _ in range(service.settings.max_header_bytes // 1_000 + 2):
        connection.send(flood % (b"a" * 1_000))
    reply = await connection.answer()
    assert (reply.status, json.loads(reply.body)["code"]) == (400, "malformed_request")
    assert "trailers" in json.loads(reply.body)["detail"]
    assert connection.wire.is_closing()
    assert log_of(service).watermarks.log_end_offset == 0


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("large", ["url", "one header", "many headers"])
async def test_a_head_has_a_bound_though_it_comes_at_once(
    service: Service, large: str, *, known: bool
) -> None:
    """One read of the socket brings more than the bound: 400, and the connection ends."""
    connection = await connected(service)
    if known:
        assert (await connection.ask(LOOK)).status == 200
    size = service.settings.max_header_bytes
    fields = {
        "url": b"",
        "one header": b"x: %b\r\n" % (b"a" * size),
        "many headers": b"x: a\r\n" * (size // 6),
    }[large]
    url = b"?" + b"a" * size if large == "url" else b""
    head = LOOK.replace(b" HTTP", url + b" HTTP").replace(b"\r\n\r\n", b"\r\n" + fields + b"\r\n")
    reply = await connection.ask(head)
    assert (reply.status, json.loads(reply.body)["code"]) == (400, "malformed_request")
    assert "max_header_bytes (65536)" in json.loads(reply.body)["detail"]
    assert connection.wire.is_closing()


async def test_a_head_of_just_the_bound_is_taken(service: Service) -> None:
    """URL and headers, each with what separates it; the line break at its end is not counted."""
    connection = await connected(service)
    url, _, fields = LOOK.partition(b" HTTP/1.1\r\n")
    used = len(url.removeprefix(b"GET ")) + len(fields) - 2
    rest = service.settings.max_header_bytes - used - len("x: \r\n")
    head = LOOK.replace(b"\r\n\r\n", b"\r\nx: %b\r\n\r\n")
    assert (await connection.ask(head % (b"a" * rest))).status == 200
    assert (await connection.ask(head % (b"a" * (rest + 1)))).status == 400


async def test_trailers_have_a_bound_though_they_come_at_once(service: Service) -> None:
    """With the end of the body in one read: nothing is written."""
    connection = await connected(service)
    trailer = b"x: " + b"a" * service.settings.max_header_bytes + b"\r\n"
    reply = await connection.ask(CHUNKED + LAST_CHUNK + trailer + b"\r\n")
    assert (reply.status, json.loads(reply.body)["code"]) == (400, "malformed_request")
    assert log_of(service).watermarks.log_end_offset == 0


async def test_a_body_may_be_longer_than_its_trailers(service: Service) -> None:
    """Chunks that come with something of the body are not counted against what frames it."""
    connection = await connected(service)
    connection.send(CHUNKED)
    blank = b"3e8\r\n" + b" " * 1_000 + b"\r\n"
    for _ in range(service.settings.max_header_bytes // 1_000 + 2):
        connection.send(blank)
    connection.send(LAST_CHUNK)
    connection.send(b"\r\n")
    assert (await connection.answer()).status == 201


@pytest.mark.parametrize(("body", "count"), [(LONG, 1), (ONE + b" " * 1_000, 70)])
async def test_a_head_is_not_charged_with_what_came_before_it(
    service: Service, body: bytes, count: int
) -> None:
    """The beginning of a head may be read together with a long body, or with many requests."""
    connection = await connected(service)
    before = request("POST", RECORDS, body) * count
    assert len(before) > service.settings.max_header_bytes
    connection.send(before[:50])
    connection.send(before[50:] + LOOK[:20])
    connection.send(LOOK[20:])
    answers = [(await connection.answer()).status for _ in range(count + 1)]
    assert answers == [201] * count + [200]


@pytest.mark.parametrize("swapped", [False, True])
async def test_a_list_may_come_in_several_lines(service: Service, *, swapped: bool) -> None:
    """Each line of Accept names something that the client takes, not the last one alone."""
    connection = await connected(service)
    lines = [b"accept: application/x-ndjson\r\n", b"accept: text/html\r\n"]
    sent = request("GET", RECORDS)
    head = b"".join(reversed(lines) if swapped else lines)
    connection.send(sent.replace(b"\r\n\r\n", b"\r\n" + head + b"\r\n"))
    reply = await connection.answer()
    assert (reply.status, dict(reply.headers)[b"content-type"]) == (200, b"application/x-ndjson")


@pytest.mark.parametrize(("version", "statuses"), [("1.1", [100, 201]), ("1.0", [201])])
async def test_a_client_of_http_1_0_is_not_told_to_continue(
    service: Service, version: str, statuses: list[int]
) -> None:
    """HTTP/1.0 has one response per request, so its expectation is ignored (RFC 9110, 10.1.1)."""
    connection = await connected(service)
    sent = request("POST", RECORDS, ONE, {"expect": "100-continue"})
    connection.send(sent.replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
    assert [(await connection.answer()).status for _ in statuses] == statuses


@pytest.mark.parametrize("path", [TAIL, "/v1/topics/events/tail"])
async def test_a_client_of_http_1_0_gets_no_chunks(service: Service, path: str) -> None:
    """A body without a length is ended by the end of the connection (RFC 9112, 6.1 and 6.3)."""
    service.settings = service.settings.model_copy(update={"max_tail_ms": 1})
    connection = await connected(service)
    connection.send(request("POST", RECORDS, ONE))
    await connection.answer()
    before = len(connection.written)
    asked = request("GET", f"{path}?offset=earliest").replace(b"HTTP/1.1", b"HTTP/1.0")
    connection.send(asked)
    while not connection.wire.is_closing():
        await connection.wire.next_write()
    head, _, body = connection.written[before:].partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body.startswith(b"retry: ")
    assert body.endswith(b"\n\n")
    assert {line.partition(b":")[0] for line in body.split(b"\n") if line} <= {
        *(b"retry", b"event", b"id", b"data")
    }


async def test_blanks_around_a_header_are_not_of_its_value(service: Service) -> None:
    """`If-None-Match: *` only creates, even with white space after the star."""
    connection = await connected(service)
    connection.send(request("PUT", "/v1/topics/events", b"{}", {"if-none-match": " *\t "}))
    assert (await connection.answer()).status == 412


@pytest.mark.parametrize("host", [b"", b"host: localhost\r\n"])
@pytest.mark.parametrize("coding", [b"gzip", b"identity", b"chunked"])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_two_faults_of_a_head_have_one_answer(
    service: Service, version: bytes, coding: bytes, host: bytes
) -> None:
    """A proxy would take a second one for the answer to another request."""
    connection = Listener(service).connect()
    head = b"POST %b HTTP/%b\r\n%btransfer-encoding: %b\r\n\r\n"
    connection.send(head % (RECORDS.encode(), version, host, coding) + LAST_CHUNK + b"\r\n")
    await connection.answer()
    assert len(re.findall(rb"HTTP/1.1 [0-9]{3} ", connection.written)) == 1
