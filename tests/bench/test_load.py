"""The load generator counts what a client would have waited."""

import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from bench.load import Load, LoadResult, post, run_load

SERVICE_S = 0.02


class Slow(BaseHTTPRequestHandler):
    """Takes its time for every request, one after the other on each connection."""

    protocol_version = "HTTP/1.1"
    pause = threading.Event()  # never set: waiting for it is time
    paths: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.paths.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        self.pause.wait(SERVICE_S)
        self.send_response(201)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """A server that is slow."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def load_of(
    port: int, rate_per_s: float | None, paths: Sequence[str] = ("/",), connections: int = 1
) -> LoadResult:
    """Half a second of posts to these paths."""
    return run_load(
        Load(
            host="127.0.0.1",
            port=port,
            requests=[post(path, "text/plain", b"x") for path in paths],
            connections=connections,
            seconds=0.5,
            warm_up_s=0.0,
            rate_per_s=rate_per_s,
        )
    )


def test_what_a_late_answer_delays_counts_as_well(port: int) -> None:
    """At five times what the server can do the queue grows: most of the time counts as waiting."""
    result = load_of(port, 5 / SERVICE_S)
    assert result.p99_ms > 10 * SERVICE_S * 1000
    assert result.p50_ms > 5 * SERVICE_S * 1000


def test_an_unhurried_load_keeps_its_rate(port: int) -> None:
    """Each request waits until it is due, however soon the one before was answered."""
    result = load_of(port, 0.2 / SERVICE_S)
    assert result.sent <= 0.5 * 0.2 / SERVICE_S + 2
    assert result.requests == result.sent


def test_a_load_without_a_rate_sends_when_it_is_answered(port: int) -> None:
    """There is one request under way, always, and nothing is counted but its own time."""
    result = load_of(port, None)
    assert result.requests <= 0.5 / SERVICE_S + 1
    assert result.requests == result.sent


@pytest.mark.parametrize("connections", [1, 2, 3, 5])
def test_every_request_is_sent_however_many_connections_there_are(
    port: int, connections: int
) -> None:
    """A connection sends the requests that are its share in turn, and every request is in one."""
    Slow.paths.clear()
    load_of(port, None, ["/0", "/1", "/2"], connections)
    assert {*Slow.paths} == {"/0", "/1", "/2"}
    if connections == 1:
        assert Slow.paths[:6] == ["/0", "/1", "/2"] * 2
