"""Tails over sockets, as they are served: protocol rules W1, W4 and W5."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.support.events import TAIL
from tests.support.server import Served, serving

RECORDS = "/v1/topics/events/partitions/0/records"


@contextmanager
def tailed(directory: Path, **settings: Any) -> Iterator[tuple[Served, httpx.Client]]:
    """A served topic and a client that appends to it."""
    with serving(directory, **settings) as served, httpx.Client(base_url=served.url) as client:
        client.put("/v1/topics/events", json={})
        yield served, client


def append(client: httpx.Client, *values: object) -> None:
    records = [{"value": value} for value in values]
    assert client.post(RECORDS, json={"records": records}).status_code == 201


def events_of(lines: Iterator[str], name: str) -> Iterator[dict[str, Any]]:
    """The data of the events of one name, as a client of httpx reads them."""
    is_wanted = False
    for line in lines:
        if line.startswith("event: "):
            is_wanted = line == f"event: {name}"
        elif is_wanted and line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_a_stream_comes_as_it_is_made(tmp_path: Path) -> None:
    """Each record is there while the answer is still open, and before its end the last event."""
    with tailed(tmp_path) as (served, client), client.stream("GET", TAIL) as answer:
        lines = answer.iter_lines()
        with httpx.Client(base_url=served.url) as other:
            for value in range(3):
                append(other, value)
                page = next(events_of(lines, "records"))
                assert [record["value"] for record in page["records"]] == [value]
        served.server.handle_exit(2, None)
        (end,) = events_of(lines, "end")
    assert (end["reason"], end["next_offset"]) == ("draining", 3)


def test_a_client_that_reads_nothing_is_cut_off(tmp_path: Path) -> None:
    """Its connection is closed and its memory freed; other readers are not disturbed."""
    with tailed(tmp_path, tail_stall_timeout_ms=1_000) as (served, client):
        address = urlsplit(served.url)
        with socket.create_connection((address.hostname, address.port or 0)) as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.sendall(f"GET {TAIL} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            append(client, "first")
            silent.recv(1)
            with client.stream("GET", TAIL) as answer:
                lines = answer.iter_lines()
                with httpx.Client(base_url=served.url) as other:
                    while served.service.admission.tails == 2:
                        append(other, "x" * 500_000)
                        next(events_of(lines, "records"))
                assert served.service.admission.tails == 1
        metrics = client.get("/metrics").text
    assert 'tidelog_tail_ends_total{reason="slow_consumer"} 1.0' in metrics
