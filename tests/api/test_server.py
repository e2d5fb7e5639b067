"""The service behind its real HTTP server, over sockets."""

import json
import socket
import threading
from pathlib import Path

import httpx
import pytest

from tests.support.server import Served, serving
from tests.support.service import BATCHES, RECORDS


@pytest.fixture
def served(tmp_path: Path) -> object:
    """A server with the topic `events`."""
    with serving(tmp_path) as served:
        httpx.put(f"{served.url}/v1/topics/events", json={}).raise_for_status()
        yield served


def test_an_answer_travels_whole(served: Served) -> None:
    """Small, large and empty answers come over one connection as they were made."""
    with httpx.Client(base_url=served.url) as client:
        values = ["x" * 500] * 1_000
        body = json.dumps({"records": [{"value": value} for value in values]})
        posted = client.post(RECORDS, content=body, headers={"content-type": "application/json"})
        assert posted.status_code == 201
        assert len(client.get(BATCHES).content) > 500_000
        assert [one["value"] for one in client.get(RECORDS).json()["records"]] == values
        assert client.get(f"{BATCHES}?offset=latest").content == b""
        assert client.get("/livez").json() == {"status": "live"}


def test_a_poller_that_hangs_up_is_forgotten(served: Served) -> None:
    """A long poll ends with its client: nobody waits for somebody who left."""
    address = served.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        request = f"GET {RECORDS}?offset=latest&max_wait_ms=60000 HTTP/1.1\r\nhost: x\r\n\r\n"
        connection.sendall(request.encode())
        until(lambda: served.service.tail.waiting == 1)
    until(lambda: served.service.tail.waiting == 0)
    until(lambda: served.service.admission.requests == 0)


def test_a_poller_that_hangs_up_on_the_other_lane_is_forgotten(served: Served) -> None:
    """The same through FastAPI's route, which an unusual parameter leads to."""
    address = served.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        query = "offset=latest&max_wait_ms=60000&explain=1"
        connection.sendall(f"GET {RECORDS}?{query} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        until(lambda: served.service.tail.waiting == 1)
    until(lambda: served.service.tail.waiting == 0)
    until(lambda: served.service.admission.requests == 0)


def test_stopping_answers_those_who_wait(served: Served) -> None:
    """A long poll is answered when the server is asked to stop, not when its time is over."""
    answers: list[int] = []

    def poll() -> None:
        url = f"{served.url}{RECORDS}?offset=latest&max_wait_ms=60000"
        answers.append(httpx.get(url, timeout=60).status_code)

    waiting = threading.Thread(target=poll)
    waiting.start()
    until(lambda: served.service.tail.waiting == 1)
    served.server.handle_exit(2, None)
    waiting.join(20)
    assert answers == [200]


def until(condition: object) -> None:
    """Return when the condition holds; pytest's own timeout is the bound."""
    pause = threading.Event()
    while not condition():  # type: ignore[operator]  # a function of no arguments
        pause.wait(0.005)
