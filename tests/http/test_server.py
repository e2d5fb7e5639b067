"""The service with its real HTTP server, over sockets."""

import json
import socket
import threading
from pathlib import Path

import httpx
import pytest

from app.server import process as server
from app.server.process import warn_of_open_files
from app.settings import Settings
from engine.fs.names import API_KEYS_FILE
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
        live = client.get("/livez")
        assert live.json() == {"status": "live"}
        for answer in (posted, live):  # for clients that would use it just when it is closed
            assert answer.headers["keep-alive"] == "timeout=75"


def test_a_poller_that_hangs_up_is_forgotten(served: Served) -> None:
    """A long poll ends when its client disconnects."""
    address = served.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        query = "offset=latest&max_wait_ms=60000"
        connection.sendall(f"GET {RECORDS}?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        until(lambda: served.service.tail.waiting == 1)
    until(lambda: served.service.tail.waiting == 0)
    until(lambda: served.service.admission.requests == 0)


def test_a_poller_that_hangs_up_on_the_other_lane_is_forgotten(served: Served) -> None:
    """The same through FastAPI's route, which an unusual parameter leads to."""
    address = served.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        query = "offset=latest&max_wait_ms=60000&explain=1"
        connection.sendall(f"GET {RECORDS}?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        until(lambda: served.service.tail.waiting == 1)
    until(lambda: served.service.tail.waiting == 0)
    until(lambda: served.service.admission.requests == 0)


@pytest.mark.parametrize(
    ("mode", "told"),
    [(0o600, []), (0o620, ["changed"]), (0o644, ["read"]), (0o666, ["changed", "read"])],
)
def test_files_that_others_can_read_or_change_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, told: list[str]
) -> None:
    """Keys must not be changed by others, and the key of TLS not be read."""
    keys, key = tmp_path / API_KEYS_FILE, tmp_path / "key.pem"
    for path in (keys, key):
        path.touch()
        path.chmod(mode)
    keys.chmod(mode & 0o622)
    key.chmod(mode & 0o644)
    warn_of_open_files(Settings(data_directory=tmp_path, tls_key=key))
    assert [
        word for word in ("changed", "read") for one in caplog.messages if f"be {word}" in one
    ] == told
    warn_of_open_files(Settings(data_directory=tmp_path / "new"))


WAITS_MS = (1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 33)


def test_a_wait_ends_at_its_time_though_timers_are_rounded(served: Served) -> None:
    """Clock and timers of whole milliseconds must not prolong a wait until the next commit."""
    log = {"topic": "events", "partition": 0, "offset": "latest"}
    with httpx.Client(base_url=served.url, timeout=60) as client:
        for wait_ms in WAITS_MS * 2:
            query = f"offset=latest&max_wait_ms={wait_ms}"
            assert client.get(f"{RECORDS}?{query}").json()["records"] == []
            assert client.get(f"{RECORDS}?{query}&explain=1").json()["records"] == []
            many = {"partitions": [log], "max_wait_ms": wait_ms}
            assert client.post("/v1/fetch", json=many).json()["partitions"][0]["records"] == []
            records = "/topics/events/partitions/0/records"
            assert client.get(f"{records}?offset=0&timeout={wait_ms}").json() == []


def until(condition: object) -> None:
    """Return when the condition holds; pytest's own timeout is the bound."""
    pause = threading.Event()
    while not condition():  # type: ignore[operator]  # a function of no arguments
        pause.wait(0.005)


def exchange(url: str, request: bytes) -> bytes:
    """Send bytes as they are and return all that comes until the service hangs up."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        wire.sendall(request)
        answer = b""
        while piece := wire.recv(65_536):
            answer += piece
    return answer


def problem_of(answer: bytes) -> dict[str, object]:
    """The problem document of a raw response, whose head must agree."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    problem: dict[str, object] = json.loads(body)
    return problem


def test_what_is_no_http_is_explained_as_every_other_error(tmp_path: Path) -> None:
    """Bytes that are not a request get a problem document, and the service continues (E1)."""
    with serving(tmp_path) as served:
        problem = problem_of(exchange(served.url, b"HELLO\r\n\r\n"))
        assert (problem["code"], problem["retryable"]) == ("malformed_request", False)
        assert httpx.get(f"{served.url}/livez").status_code == 200


def test_a_head_has_a_bound(tmp_path: Path) -> None:
    """Headers that do not end are refused before they fill the memory; usual ones are not."""
    with serving(tmp_path, max_header_bytes=10_000) as served:
        endless = b"GET /livez HTTP/1.1\r\nx: " + b"a" * 20_000
        problem = problem_of(exchange(served.url, endless))
        assert "max_header_bytes (10000)" in str(problem["detail"])
        usual = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: " + b"a" * 3_000
        for before in (b"", b"\r\n"):  # a line before the request is not yet a head
            assert b"200 OK" in exchange(served.url, before + usual + b"\r\n\r\n")


def test_another_c_library_has_no_memory_to_give_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does without the task that trims the heaps, and serves."""
    monkeypatch.setattr(server, "CAN_GIVE_BACK", False)
    with serving(tmp_path) as served:
        assert httpx.get(f"{served.url}/livez").status_code == 200
        assert served.server._watching == []  # noqa: SLF001 - nothing else shows the task
