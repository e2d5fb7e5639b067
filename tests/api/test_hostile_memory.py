"""Floods against a process of its own: each gets its answer, and the memory stays bounded."""

import contextlib
import gzip
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.support.process import Process, serving_process
from tests.support.raw import connect, read, rest_of
from tests.support.service import RECORDS

MIB = 1024 * 1024
CLIENTS = 40


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A service with the topic `events`."""
    with serving_process(tmp_path_factory.mktemp("floods")) as process:
        httpx.put(f"{process.url}/v1/topics/events", json={}).raise_for_status()
        yield process


@contextlib.contextmanager
def crowd(process: Process, data: bytes) -> Iterator[list[socket.socket]]:
    """So many clients that have sent the same."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(connect(process.url)) for _ in range(CLIENTS)]
        for wire in wires:
            wire.sendall(data)
        yield wires


def test_bombs_do_not_go_off(process: Process) -> None:
    """Forty bodies at once, each of 64 MiB from 64 KiB, are 413 or 503, and are never unpacked."""
    bomb = gzip.compress(bytes(64 * MIB))
    line = f"POST {RECORDS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    line += "content-type: application/json\r\ncontent-encoding: gzip\r\n"
    before = process.peak_bytes()
    with crowd(process, f"{line}content-length: {len(bomb)}\r\n\r\n".encode() + bomb) as wires:
        statuses = [read(rest_of(wire)).statuses for wire in wires]
    assert {status for [status] in statuses} <= {413, 503}
    assert process.peak_bytes() - before < 100 * MIB


def test_pipelined_requests_are_not_piled_up(process: Process) -> None:
    """Forty clients, each with thousands of requests behind a long poll, cost what few cost."""
    wait = f"{RECORDS}?offset=latest&max_wait_ms=500"
    poll = f"GET {wait} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    before = process.peak_bytes()
    with crowd(process, poll + b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5_000) as wires:
        answered = [len(read(rest_of(wire)).statuses) for wire in wires]
    assert answered == [1 + 128] * CLIENTS
    assert process.peak_bytes() - before < 60 * MIB
    assert httpx.get(f"{process.url}/readyz").status_code == 200
