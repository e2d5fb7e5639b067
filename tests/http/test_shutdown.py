"""A stop: waiting requests get a response, running ones end, nothing delays the exit."""

import json
import signal
import socket
from pathlib import Path

import httpx

from tests.support.process import Process, serving_process
from tests.support.raw import connect, read, rest_of
from tests.support.service import RECORDS

TAIL = RECORDS.replace("/records", "/tail?offset=latest")
HEAD = (
    b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 25\r\n\r\n" % RECORDS.encode()
)
BODY = b'{"records":[{"value":1}]}'


def asked(process: Process, request: bytes) -> socket.socket:
    """A connection on which this has been sent."""
    wire = connect(process.url)
    wire.sendall(request)
    return wire


def tailing(process: Process) -> socket.socket:
    """A connection that tails, and has begun to."""
    wire = asked(process, b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % TAIL.encode())
    come = b""
    while b"event: " not in come:
        come += wire.recv(65_536)
    return wire


def test_a_stop_answers_waiting_requests_and_finishes_running_ones(tmp_path: Path) -> None:
    """On SIGTERM polls get a response, tails their last event, running appends are written.

    /readyz says `draining` to open connections, and the exit code is 0 (H4).
    """
    with serving_process(tmp_path) as process:
        httpx.put(f"{process.url}/v1/topics/events", json={}).raise_for_status()
        httpx.get(f"{process.url}{RECORDS}").raise_for_status()
        appends = [
            asked(process, HEAD + BODY[:9]),
            asked(process, HEAD.replace(b"events", b"%65vents") + BODY[:9]),
        ]
        poll = b"GET %b?offset=latest&max_wait_ms=60000 HTTP/1.1\r\nhost: localhost\r\n\r\n"
        ready = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        waiting = asked(process, poll % RECORDS.encode() + ready)
        unfinished = asked(process, b"GET /livez HTTP/1.1\r\n")
        tail = tailing(process)
        process.stop()
        last = rest_of(tail)
        for append in appends:
            append.sendall(BODY[9:])
        assert b"event: end" in last
        assert b'"draining"' in last
        polled = rest_of(waiting)
        assert read(polled).statuses == [200, 503]
        assert b'{"status":"draining"' in polled.replace(b" ", b"")
        assert [read(rest_of(append)).statuses for append in appends] == [[201], [201]]
        assert rest_of(unfinished) == b""
        assert process.exit_code() == 0
        for wire in (*appends, waiting, unfinished, tail):
            wire.close()
    with serving_process(tmp_path) as process:
        page = json.loads(httpx.get(f"{process.url}{RECORDS}").content)
        assert [record["value"] for record in page["records"]] == [1, 1]


def test_a_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    """A client that holds the process with half a body holds it until Ctrl-C comes again."""
    with serving_process(tmp_path) as process:
        httpx.put(f"{process.url}/v1/topics/events", json={}).raise_for_status()
        with asked(process, HEAD) as unfinished, tailing(process) as tail:
            process.stop(signal.SIGINT)
            rest_of(tail)  # it drains now
            process.stop(signal.SIGINT)
            assert process.exit_code() == 0
            unfinished.close()
    with serving_process(tmp_path) as process:  # the lock is free, and the log as it was
        assert httpx.get(f"{process.url}{RECORDS}").json()["records"] == []
