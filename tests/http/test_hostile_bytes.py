"""Hostile bytes over sockets: every way in answers alike and writes nothing."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import repeat
from pathlib import Path

import httpx
import pytest

from tests.support.raw import connect, read, rest_of, tell
from tests.support.server import Served, serving
from tests.support.service import BATCHES, RECORDS, log_of

LANES = {
    "hot": (RECORDS, b""),
    "headers": (RECORDS, b"upgrade-insecure-requests: 1\r\ncontent-digest: sha-256=:%b:\r\n"),
    "fastapi": (RECORDS.replace("events", "%65vents"), b""),
}
BODY = b'{"records":[{"value":1}]}'
DIGEST = b"97MD7cLD7V5rIpwlJfSkgrijU0m7w1XM6eFsgP1jF9U="
LENGTH = b"content-length: %d\r\n\r\n" % len(BODY)
LAST = b"connection: close\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
CHUNK = b"19\r\n" + BODY + b"\r\n"
END = b"0\r\n\r\n"
LIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the topic `events`, and little patience."""
    directory: Path = tmp_path_factory.mktemp("hostile")
    with serving(
        directory,
        head_timeout_ms=100,
        body_timeout_ms=100,
        linger_timeout_ms=100,
        max_header_bytes=20_000,
        max_pipelined_requests=3,
        max_request_bytes=100_000,
    ) as served:
        httpx.put(f"{served.url}/v1/topics/events", json={}).raise_for_status()
        httpx.get(f"{served.url}{RECORDS}").raise_for_status()  # the path is cached now
        yield served


def end_of(served: Served) -> int:
    """The log's end."""
    return log_of(served.service).watermarks.log_end_offset


@contextmanager
def writing(served: Served, records: int) -> Iterator[None]:
    """Within the block a number of records is written.

    The next request works, and nothing stays held.
    """
    before = end_of(served)
    yield
    assert end_of(served) == before + records
    assert tell(served.url, LIVE[:-2] + LAST + b"\r\n").statuses == [200]
    held = served.service.admission
    assert (held.requests, held.body_bytes, held.answer_bytes) == (0, 0, 0)


def head_of(lane: str) -> bytes:
    """Line and first headers of an append that goes this way."""
    path, more = LANES[lane]
    more = more.replace(b"%b", DIGEST)
    line = b"POST %b HTTP/1.1\r\nhost: localhost\r\n" % path.encode()
    return line + b"content-type: application/json\r\n" + more


NO_HTTP = {
    "two lengths that differ": b"content-length: 25\r\ncontent-length: 3\r\n\r\n" + BODY,
    "two lengths that agree": b"content-length: 25\r\n" + LENGTH + BODY,
    "a list of lengths": b"content-length: 25, 25\r\n\r\n" + BODY,
    "a length with a sign": b"content-length: +25\r\n\r\n" + BODY,
    "a negative length": b"content-length: -1\r\n\r\n" + BODY,
    "a hexadecimal length": b"content-length: 0x19\r\n\r\n" + BODY,
    "no digits": b"content-length: \r\n\r\n" + BODY,
    "digits of another alphabet": b"content-length: \xb2\xb5\r\n\r\n" + BODY,
    "a length beyond 2^64": b"content-length: 18446744073709551641\r\n\r\n" + BODY,
    "a length before chunks": b"content-length: 25\r\n" + CHUNKED + CHUNK + END,
    "a length behind chunks": CHUNKED[:-2] + b"content-length: 5\r\n\r\n" + CHUNK + END,
    "a coding nobody has": b"transfer-encoding: xchunked\r\n\r\n" + CHUNK + END,
    "a coding of no effect": b"transfer-encoding: identity\r\n\r\n" + BODY,
    "a coding below the chunks": b"transfer-encoding: gzip, chunked\r\n\r\n" + CHUNK + END,
    "chunks twice": b"transfer-encoding: chunked\r\n" + CHUNKED + CHUNK + END,
    "a space before the colon": b"transfer-encoding : chunked\r\n\r\n" + CHUNK + END,
    "a chunk shorter than it says": CHUNKED + b"10\r\n" + BODY + b"\r\n" + END,
    "a chunk of no length": CHUNKED + b"-1\r\n" + BODY + b"\r\n" + END,
    "a chunk beyond 2^64": CHUNKED + b"fffffffffffffffff\r\n" + BODY + b"\r\n" + END,
    "a chunk behind a bare line feed": CHUNKED + b"19\n" + BODY + b"\r\n" + END,
    "a bare carriage return": b"x: a\rb\r\n" + LENGTH + BODY,
    "a folded header": b"x: a\r\n b\r\n" + LENGTH + BODY,
    "a folded length": b"content-length:\r\n 25\r\n\r\n" + BODY,
    "a NUL in a header": b"x: a\0b\r\n" + LENGTH + BODY,
    "a space in a name": b"x y: b\r\n" + LENGTH + BODY,
    "no colon": b"xy\r\n" + LENGTH + BODY,
    "two hosts": b"host: y\r\n" + LENGTH + BODY,
    "two conditions": b"expected-offset: 0\r\nexpected-offset: 9\r\n" + LENGTH + BODY,
    "two keys": b"x-api-key: a\r\nx-api-key: b\r\n" + LENGTH + BODY,
    "two tags": b'if-match: "0-0-00000000"\r\nif-match: "0-1-00000000"\r\n' + LENGTH + BODY,
    "headers without end": b"x: y\r\n" * 100_000 + LENGTH + BODY,
}


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("rest", NO_HTTP.values(), ids=NO_HTTP)
def test_what_could_be_read_in_two_ways_is_refused(served: Served, lane: str, rest: bytes) -> None:
    """A request that a proxy in front could parse differently is 400; the connection ends (E10)."""
    with writing(served, 0):
        reply = tell(served.url, head_of(lane) + rest)
        assert reply.statuses == [400], reply
        assert reply.problems[0]["code"] == "malformed_request"
        assert b"connection: close" in reply.raw
        assert b"x-content-type-options: nosniff" in reply.raw
        assert b"referrer-policy: no-referrer" in reply.raw
        assert b"cross-origin-resource-policy: same-origin" in reply.raw


HUGE = b"9" * 5_000
WRONG_BODIES = {
    "deep JSON": (400, b'{"records":[{"value":' + b"[" * 40_000 + b"]" * 40_000 + b"}]}"),
    "a lone surrogate": (400, b'{"records":[{"key":"\\ud800","value":1}]}'),
    "no UTF-8": (400, b'{"records":[{"value":"\xff"}]}'),
    "NUL between tokens": (400, b'{"records":[\0{"value":1}]}'),
    "a time before the epoch": (422, b'{"records":[{"value":1,"timestamp":-1}]}'),
    "a time beyond 2^63": (422, b'{"records":[{"value":1,"timestamp":%b}]}' % HUGE),
    "a time in the far future": (
        422,
        b'{"records":[{"value":1,"timestamp":9223372036854775807}]}',
    ),
}


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(("status", "body"), WRONG_BODIES.values(), ids=WRONG_BODIES)
def test_what_is_wrong_inside_a_body_is_explained(
    served: Served, lane: str, status: int, body: bytes
) -> None:
    """Depth, text, numbers and clocks that cannot be are refused alike on every lane (A5)."""
    digest = b64encode(sha256(body).digest())
    head = head_of(lane).replace(DIGEST, digest)
    with writing(served, 0):
        length = b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        reply = tell(served.url, head + length + body)
        assert reply.statuses == [status], reply


RANGE_FLOOD = b",".join(b"%d-%d" % (n, n) for n in range(2_000))


@pytest.mark.parametrize("path", [BATCHES, BATCHES.replace("events", "%65vents")])
def test_a_flood_of_ranges_is_one_answer(served: Served, path: str) -> None:
    """Thousands of ranges are ignored: the response never has thousands of parts."""
    with writing(served, 0):
        line = b"GET %b?offset=0 HTTP/1.1\r\nhost: localhost\r\n" % path.encode()
        flood = b"range: bytes=%b\r\nconnection: close\r\n\r\n" % RANGE_FLOOD
        assert tell(served.url, line + flood).statuses == [200]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /livez\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.2\r\nhost: localhost\r\n\r\n",
        b"GET /livez HTTP/2.0\r\nhost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"GET /livez HTTP/1.1\nhost: localhost\n\n",
        b"POST " + RECORDS.encode() + b" HTTP/1.0\r\n" + CHUNKED + CHUNK + END,
        b"BREW /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"get /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"CONNECT x:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_what_is_not_spoken_here_is_explained(served: Served, request_: bytes) -> None:
    """Other versions, other protocols, other methods and bytes no URL has: 400, then the end."""
    with writing(served, 0):
        reply = tell(served.url, request_)
        assert reply.statuses == [400], reply
        assert reply.problems[0]["code"] == "malformed_request"


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    "rest",
    [
        LENGTH,
        LENGTH + BODY[:10],
        CHUNKED,
        CHUNKED + CHUNK,
        CHUNKED + b"30\r\n" + BODY + b"\r\n" + END,
    ],
    ids=["no body", "half a body", "no chunk", "no last chunk", "a chunk longer than it says"],
)
def test_a_body_that_does_not_end_is_given_up(served: Served, lane: str, rest: bytes) -> None:
    """After `body_timeout_ms` it is 408, and the connection does not wait for the rest (E9)."""
    with writing(served, 0):
        reply = tell(served.url, head_of(lane) + rest)
        assert reply.statuses == [408], reply
        assert reply.problems[0]["code"] == "request_timeout"


@pytest.mark.parametrize("lane", LANES)
def test_a_body_that_does_not_end_is_not_listened_to_for_ever(served: Served, lane: str) -> None:
    """A client that continues to send a refused body is cut off after `linger_timeout_ms`."""
    with writing(served, 0), connect(served.url) as wire:
        wire.sendall(head_of(lane) + b"content-length: 9223372036854775807\r\n\r\n")
        for piece in repeat(bytes(65_536)):
            try:
                wire.sendall(piece)
            except ConnectionError:
                break


@pytest.mark.parametrize("lane", LANES)
def test_who_still_sends_can_read_why_it_was_refused(served: Served, lane: str) -> None:
    """A refused body is passed over; if it ends in time the connection serves on."""
    length = b"content-length: %d\r\n\r\n" % 400_000
    with writing(served, 0):
        first = head_of(lane) + length + bytes(400_000)
        reply = tell(served.url, first + LIVE[:-2] + LAST + b"\r\n")
        assert reply.statuses == [413, 200], reply


@pytest.mark.parametrize(
    ("start", "statuses"),
    [
        (b"", []),
        (b"\r\n", []),
        (b"GET /li", [408]),
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\n", [408]),
        (LIVE + b"GET", [200, 408]),
    ],
)
def test_a_head_that_does_not_end_is_given_up(
    served: Served, start: bytes, statuses: list[int]
) -> None:
    """After `head_timeout_ms` it is 408; a connection without a request is closed silently (E9)."""
    with writing(served, 0):
        assert tell(served.url, start).statuses == statuses


def test_empty_lines_keep_no_connection_open(served: Served) -> None:
    """Bytes between requests that belong to none do not end the time for the next head."""
    with connect(served.url) as wire:
        wire.sendall(LIVE)
        assert wire.recv(65_536).endswith(b"}")
        wire.sendall(b"\r\n")
        assert rest_of(wire) == b""


@pytest.mark.parametrize("lane", LANES)
def test_an_append_is_answered_before_the_garbage_after_it(served: Served, lane: str) -> None:
    """An error after an append must not be mistaken for its response: it was written."""
    with writing(served, 1):
        reply = tell(served.url, head_of(lane) + LENGTH + BODY + b"GARBAGE\r\n\r\n")
        assert reply.statuses == [201, 400], reply


@pytest.mark.parametrize("lane", LANES)
def test_a_broken_body_after_an_append_is_answered_in_order(served: Served, lane: str) -> None:
    """Of two pipelined appends the second, with wrong chunks, is refused and never executed."""
    with writing(served, 1):
        good = head_of(lane) + LENGTH + BODY
        reply = tell(served.url, good + head_of(lane) + CHUNKED + CHUNK + b"no chunk\r\n")
        assert reply.statuses == [201, 400], reply


def test_half_an_answer_is_not_followed_by_an_error(served: Served) -> None:
    """If a body fails after its response has begun, the connection is closed."""
    with writing(served, 0), connect(served.url) as wire:
        path = RECORDS.replace("/records", "/tail?offset=latest").encode()
        wire.sendall(b"GET %b HTTP/1.1\r\nhost: localhost\r\n" % path + CHUNKED)
        while b"event-stream" not in wire.recv(65_536):
            pass
        wire.sendall(b"no chunk\r\n")
        assert b"HTTP/1.1" not in rest_of(wire)


@pytest.mark.parametrize("lane", LANES)
def test_pipelined_appends_are_answered_in_order(served: Served, lane: str) -> None:
    """A wrong one between two right ones changes nothing for them."""
    wrong = head_of(lane).replace(b"content-digest", b"x") + b"content-length: 1\r\n\r\n{"
    good = head_of(lane) + LENGTH + BODY
    with writing(served, 2):
        reply = tell(served.url, good + wrong + head_of(lane) + LAST + LENGTH + BODY)
        assert reply.statuses == [201, 400, 201], reply


def test_no_more_requests_wait_behind_one_than_may(served: Served) -> None:
    """Beyond `max_pipelined_requests` the last response closes the connection (E9)."""
    wait = b"GET %b?offset=latest&max_wait_ms=50 HTTP/1.1\r\n" % RECORDS.encode()
    wait += b"host: localhost\r\n\r\n"
    with writing(served, 0):
        reply = tell(served.url, wait + LIVE * 50)
        assert reply.statuses == [200] * 4, reply
        assert reply.raw.count(b"connection: close") == 1


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    "wish",
    [
        b"connection: Upgrade, HTTP2-Settings, close\r\nupgrade: h2c\r\nhttp2-settings: AAEA\r\n",
        b"connection: upgrade\r\nconnection: close\r\nupgrade: websocket\r\n",
    ],
)
def test_a_wish_to_upgrade_is_passed_over(served: Served, lane: str, wish: bytes) -> None:
    """Java's HttpClient offers HTTP/2 on its first request: its body is read as usual."""
    with writing(served, 1):
        assert tell(served.url, head_of(lane) + wish + LENGTH + BODY).statuses == [201]
    with writing(served, 1):
        assert tell(served.url, head_of(lane) + wish + CHUNKED + CHUNK + END).statuses == [201]


@pytest.mark.parametrize("lane", LANES)
def test_unusual_and_right_is_served(served: Served, lane: str) -> None:
    """Trailers, chunk extensions, `Expect` and single bytes do no harm."""
    extended = CHUNKED + b"19;a=b\r\n" + BODY + b"\r\n0\r\nx: y\r\n\r\n"
    with writing(served, 3):
        assert tell(served.url, head_of(lane) + LAST + extended).statuses == [201]
        expecting = b"expect: 100-continue\r\n" + LAST + LENGTH + BODY
        assert tell(served.url, head_of(lane) + expecting).statuses == [100, 201]
        many = b"".join(b"h%d: v\r\n" % n for n in range(20))
        with connect(served.url) as wire:
            for byte in head_of(lane) + LAST + many + LENGTH + BODY:
                wire.send(bytes([byte]))
            assert read(rest_of(wire)).statuses == [201]


def test_there_are_only_so_many_connections(tmp_path: Path) -> None:
    """Beyond `max_connections` a connection gets 503 `overloaded` and is closed (E6)."""
    with serving(tmp_path, max_connections=2, max_address_connections_percent=100) as served:
        others = [connect(served.url) for _ in range(2)]
        for other in others:
            other.sendall(LIVE)
            assert other.recv(10)
        with connect(served.url) as wire:
            reply = read(rest_of(wire))
        assert reply.statuses == [503]
        assert reply.problems[0]["limit"] == "max_connections"
        for other in others:
            other.close()
