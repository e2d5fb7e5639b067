"""Floods against a service in its own process: each gets its response, and memory stays bounded."""

import contextlib
import gzip
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.api.rest_v2.media import JSON_V2
from engine.records.header import Codec
from tests.support.builders import values_of
from tests.support.process import Process, serving_process
from tests.support.raw import connect, read, rest_of
from tests.support.service import BATCHES, RAW, RECORDS

MIB = 1024 * 1024
INGEST = "/v1/topics/events/ingest"
CLIENTS = 40


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A service with the topic `events`."""
    with serving_process(tmp_path_factory.mktemp("floods")) as process:
        httpx.put(f"{process.url}/v1/topics/events", json={}).raise_for_status()
        yield process


@contextlib.contextmanager
def crowd(process: Process, data: bytes) -> Iterator[list[socket.socket]]:
    """A number of clients that have sent the same bytes."""
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


def many(piece: bytes) -> bytes:
    return piece * (8 * MIB // len(piece))


JSON, NDJSON = "application/json", "application/x-ndjson"
MILLIONS = [
    (RECORDS, JSON, b'{"records":[' + many(b"{},") + b"{}]}"),
    (RECORDS, JSON, b'{"records":[' + many(b"1,") + b"1]}"),
    (RECORDS, NDJSON, many(b"1\n")),
    (RECORDS, NDJSON, many(b"{} ")),
    (f"{INGEST}?split=array", JSON, b"[" + many(b"1,") + b"1]"),
    (INGEST, NDJSON, many(b"1 ")),
    (f"{INGEST}?split=lines", "text/plain", many(b"\n")),
    ("/topics/events", JSON_V2.decode(), b'{"records":[' + many(b"{},") + b"{}]}"),
]


def test_bodies_of_millions_of_parts_take_little_more_than_their_size(tmp_path: Path) -> None:
    """They are refused before their parts become objects, each of forty times its bytes."""
    with serving_process(tmp_path) as process:
        httpx.put(f"{process.url}/v1/topics/events", json={}).raise_for_status()
        before = process.peak_bytes()
        statuses = [
            httpx.post(
                process.url + path, content=body, headers={"content-type": kind}, timeout=60
            ).status_code
            for path, kind, body in MILLIONS
        ]
        assert statuses == [413, 413, 413, 400, 413, 400, 413, 413]
        assert process.peak_bytes() - before < 100 * MIB


def test_pipelined_requests_are_not_piled_up(process: Process) -> None:
    """Forty clients, each with thousands of requests after a long poll, need the memory of few."""
    wait = f"{RECORDS}?offset=latest&max_wait_ms=500"
    poll = f"GET {wait} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    before = process.peak_bytes()
    with crowd(process, poll + b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5_000) as wires:
        answered = [len(read(rest_of(wire)).statuses) for wire in wires]
    assert answered == [1 + 128] * CLIENTS
    assert process.peak_bytes() - before < 60 * MIB
    assert httpx.get(f"{process.url}/readyz").status_code == 200


ONE = [b"\x01" * (62 * MIB)]
"""A record that no answer can show: as JSON it would take 377 MB."""

MANY = [b'"%b"' % (b"x" * 2_000)] * 30_000
"""Records of which a response holds its maximum."""


@pytest.mark.parametrize("values", [ONE, MANY], ids=("one record", "many records"))
def test_ten_small_batches_that_grow_are_not_decoded_all_at_once(
    tmp_path: Path, values: list[bytes]
) -> None:
    """Ten reads of a few KB that decode to 62 MiB each: their memory has limits (`amp`)."""
    bomb = bytes(values_of(values, codec=Codec.ZSTD))
    request = f"GET {RECORDS}?offset=0 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    with serving_process(tmp_path) as process, contextlib.ExitStack() as stack:
        httpx.put(f"{process.url}/v1/topics/events", json={}).raise_for_status()
        stored = httpx.post(f"{process.url}{BATCHES}", content=bomb, headers=RAW, timeout=60)
        stored.raise_for_status()
        before = process.begin_peak()
        wires = [stack.enter_context(connect(process.url)) for _ in range(10)]
        for wire in wires:
            wire.sendall(request)
        statuses = {int(wire.recv(12)[9:]) for wire in wires}  # and the service reads no further
        assert statuses <= {200, 413, 503}
        limits = httpx.get(f"{process.url}/v1/limits").json()["limits"]
        assert limits["max_in_flight_render_bytes"] == 96 * MIB
        # One takes 244 MiB, more than the limit, and runs alone; two at once would take 488.
        assert process.peak_bytes() - before < 320 * MIB
