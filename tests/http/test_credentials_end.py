"""Credentials that end during streams, tails, polls and downloads."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from app.security.keys import changing_keys
from tests.support.credentials import FS, bearer, create_key, revoke
from tests.support.issuer import AUDIENCE, ISSUER, jwk, jwks, token
from tests.support.raw import connect, read, rest_of, until
from tests.support.server import Served, serving
from tests.support.service import RECORDS, log_of

ALL = ("read:*", "append:*", "admin:*")
TAIL = "/v1/topics/events/partitions/0/tail"
SLOW_RECORDS = f"{RECORDS}?acks=al%6C"
NDJSON = "content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n"
LINE = b'{"value":1}\n'
CHUNK = b"%x\r\n%b\r\n" % (len(LINE), LINE)
BODY = b'{"records":[{"value":1}]}'


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service with the topic `events`, whose tails have nothing to send for long."""
    with quiet(tmp_path) as served:
        httpx.put(f"{served.url}/v1/topics/events", json={}).raise_for_status()
        yield served


def quiet(directory: Path, **settings: Any) -> Any:
    named = {"api_keys_check_interval_ms": 5, "tail_heartbeat_ms": 600_000}
    return serving(directory, **(named | settings))


def directory_of(served: Served) -> Path:
    return served.service.settings.data_directory


def known_key(served: Served, name: str, *scopes: str, **more: Any) -> dict[str, str]:
    """Return the header of a new key, once the service has read it."""
    headers = bearer(create_key(directory_of(served), name, *(scopes or ALL), **more))
    until(lambda: httpx.get(f"{served.url}/v1/limits", headers=headers).status_code == 200)
    return headers


def asked(served: Served, line: str, headers: dict[str, str], more: str = "") -> socket.socket:
    """A connection on which the head of a request has been sent."""
    wire = connect(served.url)
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    wire.sendall(f"{line} HTTP/1.1\r\nhost: localhost\r\n{fields}{more}\r\n".encode())
    return wire


def taken(wire: socket.socket, wanted: bytes) -> bytes:
    """What comes up to these bytes."""
    come = b""
    while wanted not in come:
        piece = wire.recv(65_536)
        assert piece, come
        come += piece
    return come


def end_offset(served: Served) -> int:
    return log_of(served.service).watermarks.log_end_offset


def narrowed(served: Served, name: str) -> None:
    """Take the scope `append` from a key, in its place."""
    with changing_keys(FS, directory_of(served)) as keys:
        for key_id, key in keys.items():
            if key.name == name:
                keys[key_id] = msgspec.structs.replace(key, scopes=("read:*",))


def by_revoking(served: Served) -> None:
    revoke(directory_of(served), "leaked")


def by_narrowing(served: Served) -> None:
    narrowed(served, "leaked")


def by_damage(served: Served) -> None:
    (directory_of(served) / "tidelog-api-keys.json").write_text("{")


ENDINGS = pytest.mark.parametrize("end", [by_revoking, by_narrowing, by_damage])


@ENDINGS
def test_a_silent_stream_ends_with_its_key(served: Served, end: Callable[[Served], None]) -> None:
    """Even if no line is due: the response says how far it got (Z7)."""
    headers = known_key(served, "leaked")
    with asked(served, f"POST {RECORDS}?stream=true", headers, NDJSON) as wire:
        wire.sendall(CHUNK)
        until(lambda: end_offset(served) == 1)
        end(served)
        reply = read(taken(wire, b"}"))
        assert reply.statuses == [401]
        assert (reply.problems[0]["code"], reply.problems[0]["committed_lines"]) == (
            "unauthenticated",
            1,
        )
    assert end_offset(served) == 1


def test_a_busy_stream_writes_nothing_once_its_key_is_revoked(served: Served) -> None:
    """Each part is checked: a client that never pauses is stopped as well."""
    headers = known_key(served, "leaked")
    with asked(served, f"POST {RECORDS}?stream=true&acks=1", headers, NDJSON) as wire:
        is_over = threading.Event()

        def write() -> None:
            try:
                while not is_over.is_set():
                    wire.sendall(CHUNK)
            except OSError:
                pass  # the service has hung up

        writing = threading.Thread(target=write)
        writing.start()
        until(lambda: end_offset(served) > 10)
        revoke(directory_of(served), "leaked")
        reply = read(taken(wire, b"}"))
        at_the_end = end_offset(served)
        is_over.set()
        writing.join(30)
    assert reply.problems[0]["code"] == "unauthenticated"
    assert reply.problems[0]["committed_records"] == at_the_end == end_offset(served)


@ENDINGS
def test_a_silent_tail_ends_with_its_key(served: Served, end: Callable[[Served], None]) -> None:
    """It does not wait for the next event or heartbeat, which may be late."""
    headers = known_key(served, "leaked")
    with asked(served, f"GET {TAIL}", headers) as wire:
        taken(wire, b"event: offsets")
        end(served)
        assert b'"reason":"unauthenticated"' in taken(wire, b"0\r\n\r\n")


def test_a_tail_ends_when_its_key_expires(served: Served) -> None:
    """Nothing has to happen to the log or to the file of keys."""
    clock = served.service.clock
    headers = known_key(served, "short", expires_ms=clock.now_ms() + 1_500)
    with asked(served, f"GET {TAIL}", headers) as wire:
        taken(wire, b"event: offsets")
        assert b'"reason":"unauthenticated"' in taken(wire, b"0\r\n\r\n")


@pytest.mark.parametrize("path", [RECORDS, f"{RECORDS}?explain=1"], ids=["hot", "fastapi"])
def test_a_long_poll_is_woken_when_its_key_is_revoked(served: Served, path: str) -> None:
    """It is answered 401 at once, not when it would have been answered."""
    headers = known_key(served, "leaked")
    query = "&" if "?" in path else "?"
    line = f"GET {path}{query}offset=latest&max_wait_ms=60000"
    with asked(served, line, headers) as wire:
        until(lambda: served.service.tail.waiting == 1)
        revoke(directory_of(served), "leaked")
        assert read(taken(wire, b"}")).problems[0]["code"] == "unauthenticated"


def test_a_fetch_of_many_is_woken_when_its_key_is_revoked(served: Served) -> None:
    """The same for a wait on several logs."""
    headers = known_key(served, "leaked") | {"content-type": "application/json"}
    wanted = {
        "partitions": [{"topic": "events", "partition": 0, "offset": "latest"}],
        "max_wait_ms": 60_000,
        "min_bytes": 1,
    }
    body = json.dumps(wanted).encode()
    line = f"content-length: {len(body)}\r\n"
    with asked(served, "POST /v1/fetch", headers, line) as wire:
        wire.sendall(body)
        until(lambda: served.service.tail.waiting == 1)
        revoke(directory_of(served), "leaked")
        assert read(taken(wire, b"}")).problems[0]["code"] == "unauthenticated"


def test_what_was_begun_without_credentials_ends_with_the_first_key(served: Served) -> None:
    """Anonymous tails, polls and streams do not outlive the open service."""
    tail = asked(served, f"GET {TAIL}", {})
    poll = asked(served, f"GET {RECORDS}?offset=latest&max_wait_ms=60000", {})
    stream = asked(served, f"POST {RECORDS}?stream=true", {}, NDJSON)
    with closing(tail), closing(poll), closing(stream):
        taken(tail, b"event: offsets")
        until(lambda: served.service.tail.waiting == 2)
        key = known_key(served, "first")
        assert b'"reason":"unauthenticated"' in taken(tail, b"0\r\n\r\n")
        for wire in (poll, stream):
            assert read(taken(wire, b"}")).problems[0]["code"] == "unauthenticated"
        body = {"records": [{"value": "secret"}]}
        httpx.post(served.url + RECORDS, json=body, headers=key).raise_for_status()
    assert end_offset(served) == 1


def test_a_token_ends_what_it_began_when_its_key_is_withdrawn(tmp_path: Path) -> None:
    """A token cannot be revoked, but the issuer's key can."""
    path = tmp_path / "jwks"
    path.write_bytes(jwks(jwk("P-256", "k")))
    named = {"jwks": str(path), "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with quiet(tmp_path / "data", jwks_refresh_interval_ms=5, **named) as served:
        headers = bearer(token(scope="read:* admin:*"))
        topic = f"{served.url}/v1/topics/events"
        httpx.put(topic, json={}, headers=headers).raise_for_status()
        with asked(served, f"GET {TAIL}", headers) as wire:
            taken(wire, b"event: offsets")
            path.write_bytes(jwks(jwk("P-256", "other"), jwk("P-256", "k")))
            until(lambda: httpx.get(topic, headers=bearer(token(scope="read:*"))).is_success)
            path.write_bytes(jwks(jwk("P-256", "k", number=1)))
            assert b'"reason":"unauthenticated"' in taken(wire, b"0\r\n\r\n")


@pytest.mark.parametrize("path", [RECORDS, SLOW_RECORDS], ids=["hot", "fastapi"])
def test_a_body_that_comes_after_its_key_has_ended_is_refused(served: Served, path: str) -> None:
    """If only the head is sent in time, nothing is appended."""
    key = known_key(served, "leaked")
    headers = key | {"content-type": "application/json"}
    for _ in range(2):  # from the second on the path is cached, and hot
        httpx.post(served.url + path, content=BODY, headers=headers).raise_for_status()
    with asked(served, f"POST {path}", headers, f"content-length: {len(BODY)}\r\n") as wire:
        wire.sendall(BODY[:5])
        until(lambda: served.service.admission.requests == 1)
        revoke(directory_of(served), "leaked")
        until(lambda: httpx.get(f"{served.url}/v1/limits", headers=key).status_code == 401)
        wire.sendall(BODY[5:])
        assert read(taken(wire, b"}")).problems[0]["code"] == "unauthenticated"
    assert end_offset(served) == 2


@pytest.mark.parametrize("is_stalled", [True, False], ids=["stalled", "slow"])
def test_a_download_is_cut_off_with_its_key(served: Served, *, is_stalled: bool) -> None:
    """A client that takes nothing is cut off too: nothing more leaves for it."""
    headers = known_key(served, "leaked")
    body = json.dumps({"records": [{"value": "x" * 900_000}]})
    for _ in range(20):
        sent = headers | {"content-type": "application/json"}
        httpx.post(served.url + RECORDS, content=body, headers=sent).raise_for_status()
    size_bytes = log_of(served.service).reader.size_bytes
    host, _, port = served.url.removeprefix("http://").partition(":")
    with socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        wire.settimeout(60)
        wire.connect((host, int(port)))
        path = "/v1/topics/events/partitions/0/segments/0/log"
        line = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: "
        wire.sendall(f"{line}{headers['authorization']}\r\n\r\n".encode())
        come = len(taken(wire, b"\r\n\r\n"))
        revoke(directory_of(served), "leaked")
        if is_stalled:
            until(lambda: served.service.admission.requests == 0)
        with suppress(ConnectionResetError):
            come += len(rest_of(wire))
    assert come < size_bytes
