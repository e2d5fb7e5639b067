"""Reads with `stream=true`: protocol rules V1 to V6."""

import asyncio
import io
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pyarrow as pa
import pytest
from anyio.lowlevel import checkpoint

from app.limits.admission import Phase
from app.server.process import compose
from engine.fs.names import log_name
from tests.support.credentials import bearer, create_key, revoke
from tests.support.damage import one_bit_flipped
from tests.support.raw import rest_of, tell, until
from tests.support.server import serving
from tests.support.service import (
    BATCHES,
    RECORDS,
    Api,
    log_of,
    running,
)
from tests.support.time import ManualClock
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

LOG = "/v1/topics/events/partitions/0"
STREAM = f"{RECORDS}?stream=true"
ALL = ("read:*", "append:*", "admin:*")
FORMATS = ("json", "ndjson", "arrow")
IN_PARTS = "max_bytes=1"
"""A batch a part."""

OnPiece = Callable[[int], Awaitable[None]]
"""The action when the body's piece with this number is sent."""


@pytest.fixture
async def log(api: Api) -> Api:
    """Ten batches of three records, in two segments."""
    for number in range(10):
        await api.append(*[{"n": number, "text": "x" * 100}] * 3, key="k")
        if number == 4:
            await api.client.post(f"{LOG}/roll")
    return api


async def taken(
    api: Api,
    path: str,
    on_piece: OnPiece,
    *,
    gone: asyncio.Event | None = None,
    credentials: str = "",
) -> list[bytes]:
    """The body of an answer as its client takes it until it is `gone`.

    The last piece is empty if the body is complete.
    """
    pieces: list[bytes] = []
    client_gone = gone or asyncio.Event()

    async def receive() -> dict[str, Any]:
        await client_gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            pieces.append(bytes(message["body"]))
            await on_piece(len(pieces))

    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": target,
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (b"authorization", credentials.encode())],
    }
    await compose(api.service)(scope, receive, send)
    return pieces


async def nothing(_: int) -> None: ...


def offsets_in(kind: str, body: bytes) -> list[int]:
    if kind == "json":
        return [record["offset"] for record in json.loads(body)["records"]]
    if kind == "ndjson":
        return [json.loads(line)["offset"] for line in body.splitlines()]
    table = pa.ipc.open_stream(io.BytesIO(body)).read_all()
    table.validate(full=True)
    offsets: list[int] = table["offset"].to_pylist()
    return offsets


@pytest.mark.parametrize("is_hot", [True, False])
@pytest.mark.parametrize("kind", FORMATS)
async def test_a_stream_has_all_records_in_one_body(log: Api, kind: str, *, is_hot: bool) -> None:
    """Its many parts have the content of one large page; both ways in agree (V1)."""
    async with wired(log.service, is_hot=is_hot) as client:
        client.headers["accept-encoding"] = "identity"
        page = await client.get(f"{RECORDS}?format={kind}&end_offset=latest")
        streamed = await client.get(f"{STREAM}&format={kind}&{IN_PARTS}&end_offset=latest")
    assert offsets_in(kind, streamed.content) == list(range(30))
    if kind != "arrow":  # whose batches of rows are those of the parts
        assert streamed.content == page.content
    changed = {"content-length", "date", "transfer-encoding", "vary", "x-accel-buffering"}
    rest = {name: value for name, value in page.headers.items() if name not in changed}
    assert {n: value for n, value in streamed.headers.items() if n not in changed} == rest
    assert "content-length" not in streamed.headers
    assert streamed.headers["x-accel-buffering"] == "no"
    assert "next" not in streamed.links


@pytest.mark.parametrize("is_hot", [True, False])
async def test_a_stream_of_batches_is_what_is_stored(log: Api, *, is_hot: bool) -> None:
    """Byte for byte, across segments; the first batch may begin below the offset (V1, R3)."""
    async with wired(log.service, is_hot=is_hot) as client:
        whole = await client.get(BATCHES)
        streamed = await client.get(f"{BATCHES}?stream=true&{IN_PARTS}")
        part = await client.get(f"{BATCHES}?stream=true&offset=28&{IN_PARTS}")
    assert streamed.content == whole.content
    assert streamed.headers["content-type"] == whole.headers["content-type"]
    assert streamed.headers["log-first-offset"] == "0"
    assert (part.headers["log-first-offset"], part.headers["log-next-offset"]) == ("27", "30")
    assert whole.content.endswith(part.content)


@pytest.mark.parametrize(
    ("query", "expected", "next_offset"),
    [
        ("offset=5&end_offset=16", range(5, 16), 16),
        ("offset=5&end_offset=5", (), 5),
        ("offset=latest", (), 30),
        ("offset=28&end_offset=1000", range(28, 30), 30),
        ("offset=1000&on_out_of_range=earliest", range(30), 30),
        ("offset=7&end_offset=9&offsets=string", range(7, 9), 9),
        ("offset=9&end_offset=3", (), 9),
    ],
)
async def test_a_stream_ends_at_its_end(
    log: Api, query: str, expected: range, next_offset: int
) -> None:
    """At `end_offset`, or at the end of what is visible; without records it is valid too (V2)."""
    answer = await log.client.get(f"{STREAM}&{IN_PARTS}&{query}")
    page = answer.json()
    assert [int(record["offset"]) for record in page["records"]] == list(expected)
    assert (int(page["next_offset"]), int(page["high_watermark"])) == (next_offset, 30)
    assert answer.headers["log-next-offset"] == str(next_offset)
    is_text = "offsets=string" in query
    assert isinstance(page["next_offset"], str if is_text else int)
    assert answer.headers["content-type"].endswith("offsets=string") == is_text
    for kind in FORMATS:
        answer = await log.client.get(f"{STREAM}&{query}&format={kind}&offsets=number")
        if "offsets=string" not in query:
            assert offsets_in(kind, answer.content) == list(expected)


async def test_the_end_is_fixed_when_the_stream_begins(log: Api) -> None:
    """A writer that is faster than the reader does not make it endless.

    Link continues there (V2).
    """

    async def append(_: int) -> None:
        await log.append("late")

    pieces = await taken(log, f"{STREAM}&format=ndjson&{IN_PARTS}", append)
    assert pieces[-1] == b""
    assert offsets_in("ndjson", b"".join(pieces)) == list(range(30))
    answer = await log.client.get(f"{STREAM}&format=ndjson&offset=30")
    end = 30 + len(pieces)
    assert answer.text.count("\n") == len(pieces)
    assert f"offset={end}&stream=true" in answer.links["next"]["url"]


async def test_only_what_is_on_disk_is_streamed(tmp_path: Path) -> None:
    """Appended, unflushed records are not in it (V2)."""
    async with running(tmp_path, commit_interval_ms=600_000) as api:
        await api.create()
        await api.append(1, 2)
        await api.client.post(f"{RECORDS}?acks=1", json={"records": [{"value": 3}]})
        page = (await api.client.get(STREAM)).json()
        assert len(page["records"]) == 2
        assert (page["next_offset"], page["log_end_offset"]) == (2, 3)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("max_records=5", 400, "malformed_request"),
        ("min_bytes=5", 400, "malformed_request"),
        ("max_wait_ms=5", 400, "malformed_request"),
        ("explain=false", 400, "malformed_request"),
        ("stream=true", 400, "malformed_request"),
        ("offset=31", 416, "offset_beyond_log_end"),
        ("offset=2", 410, "offset_below_log_start"),
        ("log_id=AAAAAAAAAAAAAAAAAAAAAA.0", 409, "log_replaced"),
    ],
)
async def test_what_is_wrong_at_the_beginning_has_a_status(
    log: Api, query: str, status: int, code: str
) -> None:
    """The first part is read before the answer begins (V3)."""
    await log.client.post(f"{LOG}/delete-records", json={"before_offset": 3})
    answer = await log.client.get(f"{STREAM}&{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    refused = await log.client.get(STREAM, headers={"accept": "text/html"})
    assert refused.status_code == 406
    assert log.service.admission.answer_bytes == 0


async def test_a_stream_needs_chunks(tmp_path: Path) -> None:
    """An HTTP/1.0 client could not detect an incomplete body: 400 (V3). A tail has no such end."""

    def ask() -> bytes:
        with serving(tmp_path) as served:
            httpx.put(f"{served.url}/v1/topics/events", json={}).raise_for_status()
            return tell(
                served.url, f"GET {STREAM} HTTP/1.0\r\nhost: localhost\r\n\r\n".encode()
            ).raw

    answer = await asyncio.to_thread(ask)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"needs HTTP/1.1" in answer


async def truncated(api: Api) -> None:
    tag = (await api.client.get(f"{LOG}/offsets")).headers["etag"]
    answer = await api.client.post(
        f"{LOG}/truncate", json={"to_offset": 15}, headers={"if-match": tag}
    )
    assert answer.status_code == 200
    await api.append(*["other"] * 20)


async def made_again(api: Api) -> None:
    await api.client.delete("/v1/topics/events")
    await api.create()
    await api.append(*["other"] * 40)


async def stopping(api: Api) -> None:
    api.service.admission.phase = Phase.DRAINING


@pytest.mark.parametrize("change", [truncated, made_again, stopping])
@pytest.mark.parametrize("path", [f"{STREAM}&format=ndjson", f"{BATCHES}?stream=true"])
async def test_a_log_that_is_replaced_ends_its_streams(
    log: Api, path: str, change: Callable[[Api], Awaitable[None]]
) -> None:
    """No record of another log under the same offsets, and no end of the body (V4)."""

    async def meanwhile(number: int) -> None:
        if number == 3:
            await change(log)

    pieces = await taken(log, f"{path}&{IN_PARTS}", meanwhile)
    assert len(pieces) == 3
    assert pieces[-1]
    assert b"other" not in b"".join(pieces)
    assert log.service.admission.answer_bytes == 0


@pytest.mark.parametrize("path", [f"{STREAM}&format=ndjson", STREAM, f"{BATCHES}?stream=true"])
async def test_damage_after_the_start_breaks_the_connection(tmp_path: Path, path: str) -> None:
    """The client gets the intact part, and its library reports that the body is incomplete (V4)."""
    async with running(tmp_path) as api:
        await api.create(retention_ms="-1")
        for number in range(3):
            await api.append(f"{number}" * 50)
        whole = (await api.client.get(path)).content
    file = tmp_path / "events-0" / log_name(0)
    file.write_bytes(one_bit_flipped(file.read_bytes()))

    def read() -> bytes:
        got: list[bytes] = []
        with (
            serving(tmp_path) as served,
            httpx.stream("GET", f"{served.url}{path}&{IN_PARTS}") as answer,
        ):
            assert answer.headers["transfer-encoding"] == "chunked"
            with pytest.raises(httpx.RemoteProtocolError):
                got.extend(answer.iter_raw())
        return b"".join(got)

    got = await asyncio.to_thread(read)
    assert 0 < len(got) < len(whole)
    assert b"0" * 50 in got
    assert b"2" * 50 not in got


async def test_a_stream_holds_one_part_at_a_time(
    log: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """However long the log; and nothing once the client has gone (V5)."""
    whole = await log.client.get(f"{STREAM}&format=ndjson")
    held: list[int] = []
    gone = asyncio.Event()

    async def leave(number: int) -> None:
        held.append(log.service.admission.answer_bytes)
        if number == 5:
            gone.set()
            for _ in range(3):  # of the loop, until the watcher has noticed
                await checkpoint()

    with caplog.at_level(logging.INFO, "app"):
        pieces = await taken(log, f"{STREAM}&format=ndjson&{IN_PARTS}", leave, gone=gone)
    assert len(pieces) == 5
    assert 0 < max(held) <= len(whole.content) // 5
    assert log.service.admission.answer_bytes == 0
    assert "the client hung up" in caplog.text


async def test_a_head_of_a_stream_ends(log: Api) -> None:
    """The headers of the answer, and no body (C3)."""
    got = await log.client.get(f"{STREAM}&format=ndjson")
    asked = await log.client.head(f"{STREAM}&format=ndjson")
    assert (asked.status_code, asked.content) == (200, b"")
    assert dict(got.headers) == dict(asked.headers) | {"transfer-encoding": "chunked"}


async def test_a_stream_is_as_fast_as_its_quota(tmp_path: Path) -> None:
    """It pauses instead of taking more than its rate (V6)."""
    async with running(tmp_path, quota_bytes_out_per_second=200_000) as api:
        await api.create(retention_ms="-1")
        for _ in range(6):
            await api.append("x" * 50_000)
        started = monotonic()
        answer = await api.client.get(f"{STREAM}&{IN_PARTS}&format=ndjson")
        assert answer.text.count("\n") == 6
        assert monotonic() - started >= 0.25


async def test_a_client_that_leaves_in_a_pause_is_noticed(tmp_path: Path) -> None:
    """Not only when its debt is paid, which takes 49 s here (V5, V6)."""
    async with running(tmp_path, quota_bytes_out_per_second=10_000) as api:
        await api.create(retention_ms="-1")
        await api.append("x" * 500_000)
        await api.append("last")
        gone = asyncio.Event()

        async def leave(_: int) -> None:
            asyncio.get_running_loop().call_soon(gone.set)

        started = monotonic()
        pieces = await taken(api, f"{STREAM}&format=ndjson&{IN_PARTS}", leave, gone=gone)
        assert monotonic() - started < 40
        assert sum(map(len, pieces)) > 500_000
        assert b"last" not in b"".join(pieces)


async def test_a_service_that_stops_ends_a_stream_in_a_pause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not only when the debt of its caller is paid, which takes 49 s here (V4, V6)."""
    async with running(tmp_path, quota_bytes_out_per_second=10_000) as api:
        await api.create(retention_ms="-1")
        await api.append("x" * 500_000)
        await api.append("last")

        async def stop(_: int) -> None:
            asyncio.get_running_loop().call_soon(api.service.drain)

        with caplog.at_level(logging.INFO, "app"):
            async with asyncio.timeout(40):
                pieces = await taken(api, f"{STREAM}&format=ndjson&{IN_PARTS}", stop)
        assert b"last" not in b"".join(pieces)
    assert "the service is stopping" in caplog.text


async def test_a_stream_ends_with_its_key(tmp_path: Path) -> None:
    """The part after the expiry is not read (V6, Z7)."""
    clock = ManualClock()
    headers = bearer(create_key(tmp_path, "k", *ALL, expires_ms=clock.now_ms() + 60_000))
    async with running(tmp_path, clock=clock) as api:
        api.client.headers.update(headers)
        await api.create(retention_ms="-1")
        for number in range(3):
            await api.append(number)

        async def expire(number: int) -> None:
            clock.advance(60_000 * (number == 2))

        path = f"{STREAM}&format=ndjson&{IN_PARTS}"
        key = headers["authorization"]
        assert len(await taken(api, path, nothing, credentials=key)) == 4
        assert len(await taken(api, path, expire, credentials=key)) == 2


@pytest.mark.parametrize("is_stalled", [True, False], ids=["stalled", "slow"])
async def test_a_stream_is_cut_off_with_its_key(tmp_path: Path, *, is_stalled: bool) -> None:
    """Credentials are checked for every part, and a client that takes nothing is cut off (Z7)."""

    def run() -> tuple[int, int]:
        with serving(tmp_path, api_keys_check_interval_ms=5) as served:
            headers = bearer(create_key(tmp_path, "leaked", *ALL))
            url = f"{served.url}/v1/topics/events"
            until(lambda: httpx.put(url, json={}, headers=headers).is_success)
            for _ in range(20):
                body = {"records": [{"value": "x" * 900_000}]}
                httpx.post(served.url + RECORDS, json=body, headers=headers).raise_for_status()
            size_bytes = log_of(served.service).reader.size_bytes
            host, _, port = served.url.removeprefix("http://").partition(":")
            with socket.socket() as wire:
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
                wire.settimeout(60)
                wire.connect((host, int(port)))
                line = f"GET {STREAM}&format=ndjson HTTP/1.1\r\nhost: localhost\r\nauthorization: "
                wire.sendall(f"{line}{headers['authorization']}\r\n\r\n".encode())
                come = len(wire.recv(65_536))
                revoke(tmp_path, "leaked")
                if is_stalled:
                    until(lambda: served.service.admission.requests == 0)
                with suppress(ConnectionResetError):
                    come += len(rest_of(wire))
        return come, size_bytes

    come, size_bytes = await asyncio.to_thread(run)
    assert 0 < come < size_bytes
