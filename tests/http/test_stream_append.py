"""Appends of any length with `?stream=true`: protocol rules S1 to S6."""

import asyncio
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from anyio.lowlevel import checkpoint

from app.http.answers import Message
from app.server.process import compose
from engine.errors import StorageOffline
from engine.records.scan import iter_headers
from tests.support.service import NDJSON, RECORDS, Api, running
from tests.support.streams import STREAM, lines, pieces, send, send_endless, stored

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service whose parts are small, and full, and whose requests are not much larger."""
    limits = {"max_stream_part_bytes": 1_000, "max_request_bytes": 10_000}
    async with running(tmp_path, stream_linger_ms=600_000, **limits) as api:
        await api.create()
        yield api


def end_of(api: Api) -> int:
    return api.log().watermarks.log_end_offset


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await checkpoint()


@pytest.mark.parametrize("size", [7, 333, 100_000])
async def test_a_body_of_any_length_is_committed_in_parts(api: Api, size: int) -> None:
    """The receipt is about all lines, which are several batches, in order (S1)."""
    body = lines(1_000)
    assert len(body) > 2 * api.service.settings.max_request_bytes
    answer = await send(api, pieces(body, size))
    receipt = answer.json()
    assert (answer.status_code, receipt["lines"], receipt["count"]) == (201, 1_000, 1_000)
    assert (receipt["base_offset"], receipt["last_offset"]) == (0, 999)
    assert receipt["high_watermark"] == 1_000
    raw = await api.client.get(RECORDS.replace("records", "batches"))
    assert len(list(iter_headers(raw.content))) >= len(body) // 1_000
    page = await api.client.get(answer.headers["location"])
    assert [record["value"] for record in page.json()["records"]] == list(range(1_000))
    offsets = await api.client.get(RECORDS.replace("records", "offsets"))
    assert offsets.headers["etag"] == answer.headers["etag"]


@pytest.mark.parametrize(("acks", "status"), [("0", 202), ("1", 201), ("all", 201)])
async def test_acks_mean_what_they_do_elsewhere(api: Api, acks: str, status: int) -> None:
    """Only `all` waits for the disk; the receipt says which it was."""
    answer = await send(api, lines(200), path=f"{STREAM}&acks={acks}")
    assert (answer.status_code, answer.json()["acks"]) == (status, acks)
    assert await stored(api) == list(range(200))


async def test_blank_lines_count_as_lines(api: Api) -> None:
    """A client can count the lines of its body; the last needs no break (S2)."""
    body = b"\n" * 1_500 + lines(2) + b"\n\n" + b"\n" * 1_500 + b'{"value":"last"}'
    receipt = (await send(api, pieces(body))).json()
    assert (receipt["lines"], receipt["count"]) == (3_005, 3)
    assert await stored(api) == [0, 1, "last"]


@pytest.mark.parametrize("body", [b"", b"\n\n", b"\n" * 3_000])
async def test_a_body_without_a_record_is_refused(api: Api, body: bytes) -> None:
    """As everywhere: there has to be a record."""
    answer = await send(api, pieces(body))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_record")
    assert answer.json()["side_effects"] == "none"


@pytest.mark.parametrize(
    "header",
    [
        "producer_id",
        "producer_epoch",
        "producer_sequence",
        "if_match",
        "expected_offset",
        "content_digest",
        "idempotency_key",
    ],
)
async def test_what_is_about_one_append_is_refused(api: Api, header: str) -> None:
    """Sequences, conditions, digests and keys make no sense for many appends: 400 (S4)."""
    answer = await send(api, lines(1), **{header: "1"})
    assert (answer.status_code, answer.json()["header"]) == (400, header.replace("_", "-"))
    assert end_of(api) == 0


async def test_only_ndjson_can_be_cut_into_parts(api: Api) -> None:
    """Another type, or none, is 415; `stream=false` is the ordinary append."""
    for headers in ({"content-type": "application/json"}, {}):
        answer = await api.client.post(STREAM, content=lines(1), headers=headers)
        assert (answer.status_code, answer.json()["accepted"]) == (415, list(NDJSON.values()))
    answer = await send(api, lines(1), path=f"{RECORDS}?stream=false")
    assert (answer.status_code, "lines" in answer.json()) == (201, False)


async def test_a_wrong_line_ends_it_where_the_parts_before_are(api: Api) -> None:
    """Committed parts stay and are reported, with the wrong line and its record's index (S3)."""
    good = lines(500)
    body = good + b"\n" + b'{"value":1,"x":2}\n' + lines(500)
    answer = await send(api, pieces(body))
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["line"]) == (422, "invalid_record", 502)
    assert [error["index"] for error in problem["errors"]] == [500]
    assert (problem["retryable"], problem["side_effects"]) == (False, "unknown")
    assert 400 < problem["committed_lines"] <= 500
    assert problem["committed_records"] == problem["committed_lines"]
    assert problem["base_offset"] == 0
    assert problem["last_offset"] == problem["committed_records"] - 1
    assert await stored(api) == list(range(problem["committed_lines"]))


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        (b"{", 400, "malformed_request"),
        (b'{"value":"\xff"}', 400, "malformed_request"),
        (b'{"value":1,"key":1,"key_encoding":"base64"}', 422, "invalid_record"),
        (b'{"value":1,"timestamp":9999999999999999}', 422, "invalid_timestamp"),
        (b'{"value":"' + b"x" * 12_000 + b'"}', 413, "too_large"),
    ],
)
async def test_nothing_is_written_if_the_first_line_is_wrong(
    api: Api, line: bytes, status: int, code: str
) -> None:
    """Each kind of fault has the code it has elsewhere, and nothing to take back."""
    answer = await send(api, pieces(line + b"\n" + lines(3)))
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code)
    assert (problem["side_effects"], problem["committed_lines"]) == ("none", 0)
    assert problem["base_offset"] is None
    assert end_of(api) == 0


async def test_a_long_line_is_a_part_of_its_own(api: Api) -> None:
    """A line longer than a part is taken up to the limit of a request, between its neighbours."""
    long = b'{"value":"%b"}\n' % (b"x" * 8_000)
    receipt = (await send(api, pieces(lines(1) + long * 2 + lines(1)))).json()
    assert receipt["count"] == 4
    assert [len(str(value)) for value in await stored(api)] == [1, 8_000, 8_000, 1]


async def test_parts_suit_the_topic(api: Api) -> None:
    """A topic with small batches gets small parts; a record that is too large is reported."""
    await api.create("small", max_message_bytes=300)
    path = "/v1/topics/small/partitions/0/records?stream=true"
    answer = await send(api, lines(300), path=path)
    assert (answer.status_code, answer.json()["count"]) == (201, 300)
    large = await send(api, b'{"value":"%b"}' % (b"x" * 400), path=path)
    assert (large.status_code, large.json()["limit"]) == (413, "max.message.bytes")


async def test_a_part_of_too_many_records_is_refused(tmp_path: Path) -> None:
    """If fewer records are allowed than fit into a part, the error names the limit."""
    async with running(tmp_path, max_records_per_request=10) as api:
        await api.create()
        answer = await send(api, lines(11))
        problem = answer.json()
        assert (answer.status_code, problem["limit"]) == (413, "max_records_per_request")
        assert (problem["line"], problem["committed_lines"]) == (None, 0)


async def test_lines_do_not_wait_for_a_part_to_be_full(tmp_path: Path) -> None:
    """Received lines are committed soon, while the body is still open; half a line waits."""
    async with running(tmp_path, stream_linger_ms=1) as api:
        await api.create()
        seen = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield lines(2) + b'{"val'
            await seen.wait()
            yield b'ue":2}\n'

        sending = asyncio.create_task(send(api, slow()))
        await until(lambda: api.log().watermarks.high_watermark == 2)
        seen.set()
        answer = await asyncio.wait_for(sending, 30)
        assert (answer.status_code, answer.json()["count"]) == (201, 3)


async def test_a_trickle_is_committed_though_something_always_comes(tmp_path: Path) -> None:
    """Lines wait for more only so long, however steadily more comes."""
    async with running(tmp_path, stream_linger_ms=1) as api:
        await api.create()

        async def trickle() -> AsyncIterator[bytes]:
            number = 0
            while not api.log().watermarks.high_watermark:
                yield lines(1, start=number)
                number += 1
                await checkpoint()

        answer = await asyncio.wait_for(send(api, trickle()), 30)
        assert answer.status_code == 201
        assert await stored(api) == list(range(answer.json()["count"]))


async def test_a_body_that_stops_coming_is_given_up(tmp_path: Path) -> None:
    """408 after the idle timeout, with what is committed; otherwise a body may take any time."""
    async with running(tmp_path, stream_idle_timeout_ms=20, stream_linger_ms=1) as api:
        await api.create()

        async def stalled() -> AsyncIterator[bytes]:
            yield lines(2) + b"{"
            await asyncio.Event().wait()

        answer = await asyncio.wait_for(send_endless(api, stalled()), 30)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (408, "request_timeout")
        assert (problem["committed_lines"], problem["retryable"]) == (2, False)
        assert await stored(api) == [0, 1]


async def test_a_body_that_trickles_is_given_up(tmp_path: Path) -> None:
    """A byte now and then does not keep a request for ever: 408 below the least rate."""
    limits = {"stream_idle_timeout_ms": 50, "min_stream_bytes_per_second": 10_000_000}
    async with running(tmp_path, stream_linger_ms=1, **limits) as api:
        await api.create()
        assert (await api.client.get("/v1/limits")).json()["limits"].items() >= limits.items()

        async def trickle() -> AsyncIterator[bytes]:
            yield lines(2)
            while True:
                await checkpoint()
                yield b" "

        answer = await asyncio.wait_for(send(api, trickle()), 30)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (408, "request_timeout")
        assert "min_stream_bytes_per_second (10000000)" in problem["detail"]
        assert problem["committed_lines"] == 2
        assert api.service.admission.requests == 0


async def test_a_slow_body_that_keeps_moving_is_taken_to_its_end(tmp_path: Path) -> None:
    """Its idle time begins again whenever enough has come, however long it takes altogether."""
    limits = {"stream_idle_timeout_ms": 200, "min_stream_bytes_per_second": 100}
    async with running(tmp_path, stream_linger_ms=1, **limits) as api:
        await api.create()
        loop = asyncio.get_running_loop()

        async def steady() -> AsyncIterator[bytes]:
            end = loop.time() + 3 * limits["stream_idle_timeout_ms"] / 1000
            while loop.time() < end:
                yield lines(1)
                await checkpoint()

        answer = await asyncio.wait_for(send(api, steady()), 30)
        assert answer.status_code == 201


async def test_a_wrong_line_is_told_though_nothing_follows_it(tmp_path: Path) -> None:
    """A pipe that goes quiet is not listened to until its time is up, and called idle (S3)."""
    async with running(tmp_path, stream_linger_ms=1) as api:
        await api.create()

        async def quiet() -> AsyncIterator[bytes]:
            yield lines(2)
            await until(lambda: end_of(api) == 2)
            yield b"nonsense\n"
            await asyncio.Event().wait()

        answer = await asyncio.wait_for(send_endless(api, quiet()), 30)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (400, "malformed_request")
        assert (problem["line"], problem["committed_lines"]) == (3, 2)


async def test_draining_ends_a_stream_with_what_is_committed(tmp_path: Path) -> None:
    """An endless body does not keep the service from stopping."""
    async with running(tmp_path, stream_linger_ms=1) as api:
        await api.create()

        async def endless() -> AsyncIterator[bytes]:
            yield lines(2)
            await asyncio.Event().wait()

        sending = asyncio.create_task(send_endless(api, endless()))
        await until(lambda: api.log().watermarks.high_watermark == 2)
        api.service.drain()
        answer = await asyncio.wait_for(sending, 30)
        assert (answer.status_code, answer.json()["code"]) == (503, "draining")
        assert answer.json()["committed_lines"] == 2


async def gone_after(api: Api, *chunks: bytes) -> list[Message]:
    """The bytes sent to a client that disconnects after these pieces of its body."""
    messages: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
    ]
    messages.append({"type": "http.disconnect"})
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def note(message: Message) -> None:
        sent.append(message)

    path, _, query = STREAM.partition("?")
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"content-type", b"application/x-ndjson")],
        "client": ("test", 1), "server": ("test", 80),
    }  # fmt: skip
    await compose(api.service)(scope, receive, note)  # httpx cannot hang up in the middle
    return sent


async def test_what_was_committed_stays_when_the_client_goes(api: Api) -> None:
    """Whole parts are there, the rest is not, and nothing is held for a client that is gone."""
    await gone_after(api, lines(400), b'{"value":')
    await until(lambda: end_of(api) > 0)
    assert 300 < end_of(api) <= 400
    assert await stored(api) == list(range(end_of(api)))
    admission = api.service.admission
    assert (admission.requests, admission.body_bytes) == (0, 0)


async def test_a_slow_disk_slows_the_client_down(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limited number of parts waits for the disk.

    Then nothing is received, and later it continues (S6).
    """
    log, goes_on = api.log(), threading.Event()
    real = log.durability.commit

    def stalled() -> int:
        assert goes_on.wait(30)
        return real()

    monkeypatch.setattr(log.durability, "commit", stalled)
    taken, count = 0, 300

    async def counted() -> AsyncIterator[bytes]:
        nonlocal taken
        for number in range(count):
            taken += 1
            yield lines(50, start=50 * number)  # a little more than a part

    sending = asyncio.create_task(send(api, counted()))
    await until(lambda: api.local.commits.waiting == 1)
    for _ in range(200):
        await checkpoint()
    buffered = 2 * 64 * 1024 // len(lines(50))  # by uvicorn, before and after it stops to read
    assert taken < buffered + 3 * api.service.settings.max_stream_parts_in_flight
    assert api.service.admission.body_bytes < 5_000 + 2 * 64 * 1024
    goes_on.set()
    answer = await asyncio.wait_for(sending, 30)
    assert (answer.status_code, answer.json()["count"], taken) == (201, 50 * count, count)


async def test_memory_does_not_grow_with_the_body(tmp_path: Path) -> None:
    """A body of thirty times the request limit only uses the memory of a few parts."""
    part_bytes = 256 * 1024
    limits = {"max_stream_part_bytes": part_bytes, "max_request_bytes": 1_000_000}
    async with running(tmp_path, **limits) as api:
        await api.create()
        line = b'{"value":"%b"}\n' % (b"x" * 50_000)

        async def long() -> AsyncIterator[bytes]:
            for _ in range(600):
                yield line

        await send(api, line)
        tracemalloc.start()
        answer = await send(api, long())
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert answer.json()["count"] == 600
        assert peak_bytes < 16 * part_bytes


async def test_a_failing_disk_is_reported_with_the_committed_lines(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unconfirmed parts do not count as committed, and may be written or not."""
    log = api.log()
    real = log.durability.commit

    def failing() -> int:
        if log.watermarks.log_end_offset > 300:
            raise StorageOffline("the disk failed")
        return real()

    monkeypatch.setattr(log.durability, "commit", failing)
    sending = asyncio.create_task(send(api, pieces(lines(1_000))))
    while not sending.done():  # the flusher reports once, perhaps before any wait
        if end_of(api) > 300:
            api.local.commits.abandon([log], StorageOffline("the disk failed"))
        await checkpoint()
    problem = (await sending).json()
    assert (problem["status"], problem["code"]) == (503, "storage_offline")
    assert (problem["side_effects"], problem["retryable"]) == ("unknown", False)
    assert problem["committed_lines"] <= log.watermarks.high_watermark < end_of(api)


async def test_a_silent_stream_holds_only_its_last_lines(tmp_path: Path) -> None:
    """Many streams that seldom send leave the room for bodies to others."""
    goes_on = asyncio.Event()

    async def seldom() -> AsyncIterator[bytes]:
        yield lines(10)
        await goes_on.wait()
        yield lines(1)

    async with running(tmp_path, stream_linger_ms=1) as api:
        await api.create()
        sending = asyncio.create_task(send(api, seldom()))
        await until(lambda: end_of(api) == 10)
        held_bytes = api.service.admission.body_bytes
        goes_on.set()
        assert (await asyncio.wait_for(sending, 30)).json()["count"] == 11
        assert 0 < held_bytes <= len(lines(10))
        assert api.service.admission.body_bytes == 0


async def test_a_full_service_takes_no_more_of_a_body(tmp_path: Path) -> None:
    """Bytes of streams count among those of all bodies: 503 and what is committed."""
    limits = {"max_stream_part_bytes": 1_000, "max_in_flight_bytes": 2_500}
    async with running(tmp_path, **limits) as api:
        await api.create()
        answer = await send(api, b'{"value":"%b"}\n' % (b"x" * 5_000))
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        assert (await send(api, lines(2))).status_code == 201
        assert api.service.admission.body_bytes == 0
