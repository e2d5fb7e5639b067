"""Clients that only connect: they are counted at once, and leave room and files to others."""

import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.limits.admission import Admission
from app.limits.system_limits import allowed_files
from app.settings import Settings
from engine.errors import Overloaded
from tests.support.certificates import Authority
from tests.support.credentials import bearer, create_key, revoke
from tests.support.process import serving_process
from tests.support.raw import read, rest_of, until
from tests.support.server import Served, serving
from tests.support.service import RECORDS

ALL = ("read:*", "append:*", "admin:*")
LIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
LIMITS: dict[str, Any] = {"max_connections": 8, "max_address_connections_percent": 75}
GREEDY, OTHER = "127.0.0.1", "127.0.0.2"


def connect(url: str, address: str = GREEDY) -> socket.socket:
    """A silent connection from one address of loopback."""
    host, _, port = url.partition("://")[2].partition(":")
    return socket.create_connection((host, int(port)), 60, (address, 0))


def end_of(wire: socket.socket) -> bytes:
    """What came until the service closed the connection."""
    with suppress(ConnectionResetError):
        return rest_of(wire)
    return b""


@contextmanager
def served_over_tls(directory: Path, **settings: Any) -> Iterator[tuple[Served, ssl.SSLContext]]:
    """A TLS service without connected clients, and the CA that its clients trust."""
    authority = Authority(directory)
    server = authority.vouch("server")
    trusted = ssl.create_default_context(cafile=str(authority.path))
    settings |= {"tls_cert": server.cert, "tls_key": server.key}
    with serving(directory / "data", trusted=trusted, **settings) as served:
        until(lambda: not served.service.admission.connections_pool.held)
        yield served, trusted


def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    """Beyond its share it gets 503 and is closed; another address is served."""
    with serving(tmp_path, **LIMITS) as served, ExitStack() as silent:
        held = served.service.admission.connections_pool
        until(lambda: not held.held)
        for _ in range(6):
            silent.enter_context(connect(served.url))
        with connect(served.url) as refused:
            reply = read(rest_of(refused))
        assert reply.statuses == [503]
        assert reply.problems[0]["limit"] == "max_address_connections_percent"
        with connect(served.url, OTHER) as wire:
            wire.sendall(LIVE)
            assert read(rest_of(wire)).statuses == [200]
        silent.close()
        until(lambda: not held.held)


def test_silent_tls_connections_are_counted_and_refused_at_once(tmp_path: Path) -> None:
    """A connection counts before its handshake; another address still gets through its own."""
    with served_over_tls(tmp_path, **LIMITS) as (served, trusted), ExitStack() as silent:
        for _ in range(6):
            silent.enter_context(connect(served.url))
        with connect(served.url) as refused:
            assert end_of(refused) == b""
        assert served.service.admission.connections_pool.held == 6
        with (
            connect(served.url, OTHER) as wire,
            trusted.wrap_socket(wire, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(LIVE)
            assert read(rest_of(secured)).statuses == [200]


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02"], ids=["nothing", "a beginning"])
def test_a_handshake_that_does_not_end_is_given_up(tmp_path: Path, said: bytes) -> None:
    """After `tls_handshake_timeout_ms` the connection is closed and counts no more."""
    with served_over_tls(tmp_path, tls_handshake_timeout_ms=100) as (served, _):
        with connect(served.url) as silent:
            silent.sendall(said)
            assert end_of(silent) == b""
        until(lambda: not served.service.admission.connections_pool.held)


def test_what_is_no_tls_is_closed(tmp_path: Path) -> None:
    """A client that speaks plain HTTP to a TLS port, or hangs up, is not counted for long."""
    with served_over_tls(tmp_path) as (served, _):
        with connect(served.url) as wire:
            wire.sendall(LIVE)
            assert b"HTTP" not in end_of(wire)
        connect(served.url).close()
        until(lambda: not served.service.admission.connections_pool.held)


def test_the_last_files_are_not_for_connections() -> None:
    """Even if the others are used up: logs and keys can still be opened."""
    admission = Admission(Settings(min_free_files=10))
    reserve = min(10, allowed_files() // 4)
    ends: list[Callable[[], None]] = []
    ends.append(admission.connect(GREEDY, allowed_files() - reserve - 1))
    with pytest.raises(Overloaded) as refused:
        admission.connect(GREEDY, allowed_files() - reserve)
    assert refused.value.facts()["limit"] == "min_free_files"
    for end in ends:
        end()
    assert admission.connections_pool.held == 0


def test_a_flood_of_connections_leaves_files_to_logs_and_keys(tmp_path: Path) -> None:
    """While new connections are refused, a key can be revoked and a log can roll."""
    keys = {name: bearer(create_key(tmp_path, name, *ALL)) for name in ("root", "leaked")}
    with serving_process(tmp_path, api_keys_check_interval_ms=50) as process, ExitStack() as stack:
        clients = {
            name: stack.enter_context(httpx.Client(base_url=process.url, headers=keys[name]))
            for name in keys
        }
        clients["root"].put("/v1/topics/events", json={}).raise_for_status()
        clients["leaked"].get("/v1/topics").raise_for_status()
        opened = Path(f"/proc/{process.popen.pid}/fd")
        limit = len(list(opened.iterdir())) + 60
        resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (limit, limit))
        for number in range(2 * limit):
            wire = stack.enter_context(connect(process.url, f"127.0.1.{number % 20 + 1}"))
        assert read(end_of(wire)).statuses == [503]
        assert len(list(opened.iterdir())) <= limit - limit // 4
        revoke(tmp_path, "leaked")
        until(lambda: clients["leaked"].get("/v1/topics").status_code == 401)
        for _ in range(3):
            answer = clients["root"].post(RECORDS, json={"records": [{"value": 1}]})
            assert answer.status_code == 201, answer.text
            rolled = clients["root"].post(RECORDS.replace("records", "roll"))
            assert rolled.status_code == 200, rolled.text
