"""A real nginx with `deploy/nginx-cache.conf` in front: conditions, streams, and HTTP/2."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.test_tail_served import events_of
from tests.support.damage import one_bit_flipped
from tests.support.nginx import NAME, client_of, nginx
from tests.support.patience import at_most
from tests.support.raw import until
from tests.support.server import Served, serving
from tests.support.service import BATCHES, NDJSON, OFFSETS, RECORDS

pytestmark = [pytest.mark.long, pytest.mark.needs("nginx")]

GZIP = "gzip on; gzip_types application/json application/problem+json; gzip_min_length 0;"
TOPIC = "/v1/topics/events"
TAIL = "/v1/topics/events/partitions/0/tail"
CURSOR = "/v1/groups/lake/offsets/events/0"
ONE = {"records": [{"value": 1}]}


@contextmanager
def behind(
    directory: Path, more: str = "", listen: str = "", **settings: Any
) -> Iterator[tuple[Served, Path]]:
    """A served topic and the socket of an nginx in front of it."""
    settings = {"cache_visibility": "public", "allowed_hosts": [NAME]} | settings
    with (
        serving(directory, **settings) as served,
        nginx(served.url, more=more, listen=listen) as path_of_socket,
    ):
        httpx.put(served.url + TOPIC, json={}).raise_for_status()
        yield served, path_of_socket


def values(answer: httpx.Response) -> list[Any]:
    return [record["value"] for record in answer.raise_for_status().json()["records"]]


def test_conditions_hold_although_nginx_weakens_tags(tmp_path: Path) -> None:
    """With `gzip on` appends, topics and group offsets take the tags that clients get (C5)."""
    with behind(tmp_path, GZIP) as (_, path_of_socket), client_of(path_of_socket) as client:
        for _ in range(2):
            tag = client.get(OFFSETS).headers["etag"]
            assert tag.startswith('W/"'), "nginx has compressed the answer"
            answers = [client.post(RECORDS, json=ONE, headers={"if-match": tag}) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [201, 412]
        client.put(CURSOR, json={"offset": 0}).raise_for_status()
        for path, method, body in (
            (CURSOR, "PUT", {"offset": 1}),
            (TOPIC, "PATCH", {"config": {"retention.ms": "-1"}}),
        ):
            tag = client.get(path).headers["etag"]
            assert tag.startswith('W/"')
            condition = {"if-match": tag}
            answers = [client.request(method, path, json=body, headers=condition) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 412]
        page = client.post(RECORDS, json=ONE).headers["location"]
        tag = client.get(page).headers["etag"]
        assert tag.startswith('W/"')
        assert client.get(page, headers={"if-none-match": tag}).status_code == 304


def test_a_stream_is_committed_while_it_is_sent(tmp_path: Path) -> None:
    """The first line can be read through nginx before the second one is sent (S1)."""
    with (
        behind(tmp_path) as (_, path_of_socket),
        client_of(path_of_socket) as writer,
        client_of(path_of_socket) as reader,
    ):

        def lines() -> Iterator[bytes]:
            for value in range(3):
                yield b'{"value":%d}\n' % value
                waiting = f"{RECORDS}?offset={value}&max_wait_ms=30000"
                assert values(reader.get(waiting)) == [value]

        answer = writer.post(f"{RECORDS}?stream=true", content=lines(), headers=NDJSON)
        assert (answer.status_code, answer.json()["lines"]) == (201, 3)


def test_a_stream_may_be_longer_than_any_limit(tmp_path: Path) -> None:
    """It has more than `max_request_bytes`; an append of that size gets the service's own 413."""
    line = json.dumps({"value": "x" * 1_000}).encode() + b"\n"
    count = 20_000
    with behind(tmp_path) as (_, path_of_socket), client_of(path_of_socket) as client:
        answer = client.post(f"{RECORDS}?stream=true", content=line * count, headers=NDJSON)
        assert (answer.status_code, answer.json()["lines"]) == (201, count)
        for body in (line * count, iter([line * 1_000] * 20)):
            refused = client.post(RECORDS, content=body, headers=NDJSON)
            assert (refused.status_code, refused.json()["limit"]) == (413, "max_request_bytes")
        assert client.get(OFFSETS).json()["log_end_offset"] == count


def test_an_error_within_a_stream_reaches_its_client(tmp_path: Path) -> None:
    """A line is refused while 20 MB are still being sent, and nginx passes the answer on (S3)."""
    with behind(tmp_path) as (_, path_of_socket), client_of(path_of_socket) as client:

        def lines() -> Iterator[bytes]:
            yield b"not JSON\n"
            for _ in range(200):
                yield b'{"value":"%b"}\n' % (b"x" * 100_000)

        answer = client.post(f"{RECORDS}?stream=true", content=lines(), headers=NDJSON)
        assert (answer.status_code, answer.json()["line"]) == (400, 1)


def test_events_come_one_by_one(tmp_path: Path) -> None:
    """Each commit is with the tail's client while its answer is open, with `gzip on` too (W1)."""
    coded = GZIP.replace("application/json", "application/json text/event-stream")
    with (
        behind(tmp_path, coded) as (_, path_of_socket),
        client_of(path_of_socket) as reader,
        client_of(path_of_socket) as writer,
        reader.stream("GET", TAIL) as answer,
    ):
        lines = answer.iter_lines()
        for value in range(3):
            writer.post(RECORDS, json={"records": [{"value": value}]}).raise_for_status()
            page = next(events_of(lines, "records"))
            assert [record["value"] for record in page["records"]] == [value]


@pytest.mark.parametrize("path", [f"{RECORDS}?stream=true", f"{BATCHES}?stream=true"])
def test_a_streamed_read_is_whole_or_broken_off(tmp_path: Path, path: str) -> None:
    """Its client sees that the last chunk is missing, with `gzip on` too (V4)."""
    with behind(tmp_path, GZIP) as (served, path_of_socket), client_of(path_of_socket) as client:
        for _ in range(5):
            records = [{"value": "x" * 1_000}] * 500
            client.post(RECORDS, json={"records": records}).raise_for_status()
        whole = client.get(f"{path}&max_bytes=1")
        assert whole.content == client.get(path).content
        assert len(whole.content) > 2_500_000
        log = tmp_path / "events-0" / f"{0:020}.log"
        log.write_bytes(one_bit_flipped(log.read_bytes()))
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(f"{path}&max_bytes=1")
        assert served.service.admission.requests == 0


def test_a_streamed_read_ends_with_its_client(tmp_path: Path) -> None:
    """A client that hangs up on nginx leaves no read on the service (V5)."""
    with behind(tmp_path) as (served, path_of_socket), socket.socket(socket.AF_UNIX) as wire:
        for _ in range(40):
            body = {"records": [{"value": "x" * 900_000}]}
            httpx.post(served.url + RECORDS, json=body).raise_for_status()
        before = read_bytes(served)
        wire.connect(str(path_of_socket))
        head = f"GET {BATCHES}?stream=true&max_bytes=1 HTTP/1.1\r\nHost: {NAME}\r\n\r\n"
        wire.sendall(head.encode())
        assert wire.recv(65_536).startswith(b"HTTP/1.1 200 ")
        wire.close()
        with at_most(2):
            until(lambda: served.service.admission.requests == 0)
        assert 0 < read_bytes(served) - before < 36_000_000


def read_bytes(served: Served) -> float:
    """How many bytes of batches the service has read for clients."""
    metrics = httpx.get(f"{served.url}/metrics").text
    return sum(
        map(float, re.findall(r"^tidelog_\w*bytes_out_total.* (\S+)$", metrics, re.MULTILINE))
    )


@pytest.mark.parametrize(
    ("path", "held"), [(f"{RECORDS}?max_wait_ms=60000", "waiting_readers"), (TAIL, "tails")]
)
def test_what_waits_ends_with_its_client(tmp_path: Path, path: str, held: str) -> None:
    """A client that hangs up on nginx leaves no long poll and no tail on the service (R9, W1)."""
    with behind(tmp_path) as (served, path_of_socket), socket.socket(socket.AF_UNIX) as wire:
        wire.connect(str(path_of_socket))
        wire.sendall(f"GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        with at_most(2):  # 40 s of waiting: less than the long poll takes
            until(lambda: getattr(served.service.admission, held) == 1)
            wire.close()
            until(lambda: getattr(served.service.admission, held) == 0)


def test_an_nginx_that_speaks_http_1_0_is_served(tmp_path: Path) -> None:
    """Its default for long: a tail arrives event by event, and a stream is refused with advice."""
    with serving(tmp_path / "data", allowed_hosts=[NAME]) as served:
        old = f"server {{ listen unix:{tmp_path}/old; location / {{ proxy_pass {served.url}; "
        old += f"proxy_http_version 1.0; proxy_set_header Host {NAME}; proxy_buffering off; }} }}"
        httpx.put(served.url + TOPIC, json={}).raise_for_status()
        httpx.post(served.url + RECORDS, json={"records": [{"value": 1}]}).raise_for_status()
        with nginx(served.url, more=old), client_of(tmp_path / "old") as client:
            with client.stream("GET", TAIL + "?offset=0") as tail:
                lines = tail.iter_lines()
                assert next(lines) == "retry: 1000"
                assert any('"value":1' in line for line in lines)
            refused = client.get(f"{RECORDS}?stream=true")
            assert refused.status_code == 400
            assert "proxy_http_version 1.1" in refused.json()["detail"]


def test_a_segment_is_downloaded_whole_and_in_parts(tmp_path: Path) -> None:
    """Its strong tag stays, so that If-Range resumes it, with `gzip on` too (D4, D5)."""
    with behind(tmp_path, GZIP) as (_, path_of_socket), client_of(path_of_socket) as client:
        for _ in range(10):
            records = [{"value": "x" * 1_000}] * 500
            client.post(RECORDS, json={"records": records}).raise_for_status()
        segment = f"{TOPIC}/partitions/0/segments/0/log"
        whole = client.get(segment)
        assert whole.content == client.get(f"{BATCHES}?max_bytes=67108864").content
        resumed = {"range": "bytes=3000000-", "if-range": whole.headers["etag"]}
        part = client.get(segment, headers=resumed)
        assert (part.status_code, part.content) == (206, whole.content[3_000_000:])


@pytest.mark.needs("curl")
def test_nginx_speaks_http_2_for_the_service(tmp_path: Path) -> None:
    """The service alone closes an HTTP/2 connection without a response; through nginx it works."""

    def curl(*arguments: str, body: bytes = b"") -> tuple[int, bytes]:
        command = ["curl", "--silent", "--http2-prior-knowledge", *arguments]
        ended = subprocess.run(command, input=body, capture_output=True, timeout=60, check=False)
        return ended.returncode, ended.stdout

    with behind(tmp_path, listen="http2") as (served, path_of_socket):
        assert curl(served.url + OFFSETS)[0] != 0
        through = ("--unix-socket", str(path_of_socket), "--write-out", "%{http_version}")
        code, printed = curl(*through, f"http://{NAME}{OFFSETS}")
        assert (code, printed[-1:]) == (0, b"2")
        lines = b'{"value":1}\n' * 1_000
        sent = (*through, "-H", "Content-Type: application/x-ndjson", "-T", "-", "-X", "POST")
        code, printed = curl(*sent, f"http://{NAME}{RECORDS}?stream=true", body=lines)
        assert (code, printed[-1:], b'"lines":1000' in printed) == (0, b"2", True)
