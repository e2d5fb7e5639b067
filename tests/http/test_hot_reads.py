"""Reads below ASGI: which ones wait, and what a connection must not lose."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.limits.admission import Phase
from app.operations.service import Service
from app.security.principal import Principal
from app.security.rules import EVERYTHING, Grants
from app.wire import hot_reads
from engine.records.builder import build_batch
from tests.support.raw import connect, until
from tests.support.server import serving
from tests.support.service import BATCHES, OFFSETS, RECORDS, log_of, open_in_memory
from tests.support.wire import Listener, request, turn

pytestmark = pytest.mark.anyio

POLL = request("GET", f"{RECORDS}?offset=0&max_wait_ms=60000")
LOOK = request("GET", OFFSETS)
LARGE = b'"%b"' % (b"x" * 900_000)


@pytest.fixture
async def service(anyio_backend: str) -> AsyncIterator[Service]:
    """An open service with the topic `events`, whose answers above 4 KiB are made by workers."""
    async with open_in_memory() as service:
        yield service


async def knowing(service: Service) -> Listener:
    """A listener whose service knows the topic `events` and has cached its paths."""
    listener = Listener(service)
    connection = listener.connect()
    await connection.ask(request("PUT", "/v1/topics/events", b"{}"))
    for path in (RECORDS, BATCHES, OFFSETS):
        assert (await connection.ask(request("GET", path))).status == 200
    return listener


def commit(service: Service, *values: bytes) -> None:
    """Append a batch that is on disk on return; its readers are not notified yet."""
    log = log_of(service)
    log.append(build_batch([(1, None, value, ()) for value in values]))
    log.durability.commit()


def told(service: Service) -> None:
    service.tail.wake(log_of(service))


def values_of(body: bytes) -> list[object]:
    return [record["value"] for record in json.loads(body)["records"]]


def is_idle(service: Service) -> bool:
    """Whether nothing is held for any request."""
    held = service.admission
    return (held.requests, held.waiting_readers, held.answer_bytes) == (0, 0, 0) and (
        service.tail.waiting == 0
    )


@pytest.mark.parametrize("path", [RECORDS, BATCHES, OFFSETS, f"{RECORDS}?offset=latest"])
async def test_a_read_needs_no_task_and_one_write(service: Service, path: str) -> None:
    """The answer is one write of head and body, made where the request was parsed."""
    connection = (await knowing(service)).connect()
    commit(service, b"1")
    connection.send(request("GET", path))
    assert (connection.has_tasks, len(connection.wire.writes)) == (False, 1)
    assert (await connection.answer()).status == 200
    assert is_idle(service)


async def test_reads_that_are_pipelined_are_answered_in_order(service: Service) -> None:
    """After a read that waits, the next one waits for its response, in both ways in."""
    connection = (await knowing(service)).connect()
    connection.send(POLL + LOOK + request("GET", RECORDS) + LOOK)
    await turn()
    assert (connection.wire.writes, connection.wire.is_reading_paused) == ([], True)
    commit(service, b"1")
    told(service)
    bodies = [json.loads((await connection.answer()).body) for _ in range(4)]
    assert [body.get("recovery_point") for body in bodies] == [None, 0, None, 0]
    assert not connection.wire.is_reading_paused


@pytest.mark.parametrize("path", [RECORDS, BATCHES])
async def test_who_waits_for_one_commit_shares_one_look(
    service: Service, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Sixteen long polls: the log is read once for all of them, and each is one write."""
    listener = await knowing(service)
    polls = [listener.connect() for _ in range(16)]
    for poll in polls:
        poll.send(request("GET", f"{path}?offset=0&max_wait_ms=60000"))
    assert service.tail.waiting == len(polls)
    looks = reads_of(service, monkeypatch)
    commit(service, b'"new"')
    told(service)
    assert (len(looks), is_idle(service)) == (1, True)
    for poll in polls:
        assert (poll.has_tasks, len(poll.wire.writes)) == (False, 1)
        assert b'"new"' in (await poll.answer()).body


def reads_of(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Every read of the log from now on: whether it was one of cached bytes."""
    log, reads = log_of(service), []
    real = log.reader.read

    def counted(*arguments: Any, cached_only: bool = False, **options: Any) -> object:
        reads.append(cached_only)
        return real(*arguments, cached_only=cached_only, **options)

    monkeypatch.setattr(log.reader, "read", counted)
    return reads


def make_cold(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing of the log in memory from now on."""
    log = log_of(service)
    real = log.reader.read

    def cold(*arguments: Any, cached_only: bool = False, **options: Any) -> object:
        return None if cached_only else real(*arguments, **options)

    monkeypatch.setattr(log.reader, "read", cold)


async def test_a_poll_waits_until_it_is_enough(service: Service) -> None:
    """min_bytes counts stored bytes: one small batch does not end the wait, two do."""
    connection = (await knowing(service)).connect()
    connection.send(request("GET", f"{RECORDS}?offset=0&max_wait_ms=60000&min_bytes=100"))
    commit(service, b"1")
    told(service)
    assert (connection.wire.writes, service.tail.waiting) == ([], 1)
    commit(service, b"2")
    told(service)
    assert values_of((await connection.answer()).body) == [1, 2]
    assert is_idle(service)


async def test_a_poll_ends_empty_at_its_time(service: Service) -> None:
    """Nothing came: 200 without records."""
    connection = (await knowing(service)).connect()
    connection.send(request("GET", f"{RECORDS}?offset=0&max_wait_ms=20"))
    assert service.tail.waiting == 1
    assert values_of((await connection.answer()).body) == []
    assert is_idle(service)


@pytest.mark.parametrize("behind", [b"", LOOK], ids=["alone", "pipelined"])
async def test_a_disconnect_ends_a_poll(service: Service, behind: bytes) -> None:
    """Nothing is held for a client that disconnected, even with more requests after its poll."""
    connection = (await knowing(service)).connect()
    connection.send(POLL + behind)
    connection.hang_up()
    await turn()
    assert is_idle(service)
    commit(service, b"1")
    told(service)
    assert connection.wire.writes == []


def test_a_disconnect_ends_a_poll_even_with_a_request_after_it(tmp_path: Path) -> None:
    """A poll of a minute ends with its client, although another request waits after it (R9)."""
    with serving(tmp_path) as served:
        assert httpx.put(f"{served.url}/v1/topics/events", json={}).status_code == 201
        admission = served.service.admission
        for _ in ("ASGI's lane", "the hot one, which takes paths that have been met"):
            with connect(served.url) as wire:
                wire.sendall(LOOK + POLL + LOOK)
                until(lambda: admission.waiting_readers == 1)
            until(lambda: admission.waiting_readers == 0)


async def test_a_stopping_service_answers_waiting_polls(service: Service) -> None:
    """A poll gets what is there with `Connection: close`, and the connection is closed."""
    connection = (await knowing(service)).connect()
    connection.send(POLL)
    connection.protocol.shutdown()
    assert connection.wire.writes == []
    service.drain()
    reply = await connection.answer()
    assert (reply.status, dict(reply.headers)[b"connection"]) == (200, b"close")
    assert connection.wire.is_closing()


async def test_a_poll_on_a_deleted_topic_gets_the_error(service: Service) -> None:
    """A poll at the end of a log that is deleted gets the problem document."""
    listener = await knowing(service)
    poll, other = listener.connect(), listener.connect()
    poll.send(POLL)
    other.send(request("DELETE", "/v1/topics/events"))
    reply = await poll.answer()
    assert (reply.status, json.loads(reply.body)["code"]) == (404, "topic_not_found")
    assert (await other.answer()).status == 204
    assert is_idle(service)


async def test_a_poll_ends_with_its_credentials(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records committed after the credentials were withdrawn are not sent; before that they are."""
    listener = await knowing(service)
    caller = Principal("reader", Grants(EVERYTHING))
    monkeypatch.setattr(service.security, "authorize", lambda *_: caller)
    polls = [listener.connect() for _ in range(2)]
    polls[0].send(POLL)
    commit(service, b"1")
    told(service)
    assert (await polls[0].answer()).status == 200
    polls[1].send(POLL.replace(b"offset=0", b"offset=1"))
    caller.is_revoked = True
    told(service)
    assert (await polls[1].answer()).status == 401


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (request("GET", f"{RECORDS}?offset=9"), 416, "offset_beyond_log_end"),
        (request("GET", f"{RECORDS}?log_id=AAAAAAAAAAAAAAAAAAAAAA.0"), 409, "log_replaced"),
        (request("GET", RECORDS, headers={"accept": "text/html"}), 406, "not_acceptable"),
        (request("GET", BATCHES, headers={"accept": "text/html"}), 406, "not_acceptable"),
    ],
)
async def test_what_is_wrong_is_explained(
    service: Service, sent: bytes, status: int, code: str
) -> None:
    """An error has its problem document, and the connection continues."""
    connection = (await knowing(service)).connect()
    connection.send(sent + LOOK)
    reply = await connection.answer()
    assert (reply.status, json.loads(reply.body)["code"]) == (status, code)
    assert (await connection.answer()).status == 200
    assert is_idle(service)


@pytest.mark.parametrize("is_waited_for", [False, True])
async def test_what_is_on_disk_is_read_by_a_worker(
    service: Service, monkeypatch: pytest.MonkeyPatch, *, is_waited_for: bool
) -> None:
    """Bytes that are not in memory are read in a task, at once or when the log has moved."""
    connection = (await knowing(service)).connect()
    if is_waited_for:
        connection.send(POLL)
    make_cold(service, monkeypatch)
    commit(service, b"1")
    if is_waited_for:
        told(service)
    else:
        connection.send(POLL)
    assert connection.has_tasks
    assert values_of((await connection.answer()).body) == [1]
    assert is_idle(service)


async def test_who_leaves_while_the_disk_is_read_waits_no_more(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that finds too little for a client that has gone does not begin to wait."""
    connection = (await knowing(service)).connect()
    make_cold(service, monkeypatch)
    connection.send(POLL)
    connection.hang_up()
    await asyncio.gather(*connection.protocol.tasks)
    assert is_idle(service)


async def test_what_the_disk_cannot_give_is_explained(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's read that fails ends in a problem document."""
    connection = (await knowing(service)).connect()
    make_cold(service, monkeypatch)
    connection.send(request("GET", f"{RECORDS}?offset=9&max_wait_ms=1000"))
    assert (await connection.answer()).status == 416


async def test_what_cannot_be_rendered_is_explained(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the worker that renders ends in a problem document."""

    async def fails(*_: object) -> None:
        raise RuntimeError("planted")

    connection = (await knowing(service)).connect()
    commit(service, LARGE)
    monkeypatch.setattr(hot_reads, "records_answer", fails)
    connection.send(request("GET", f"{RECORDS}?max_bytes=2000000"))
    assert (await connection.answer()).status == 500


async def test_json_is_compressed_for_who_asks_for_that(service: Service) -> None:
    """From `min_coded_bytes` on; a smaller answer, and raw batches, go out as they are."""
    connection = (await knowing(service)).connect()
    wants = {"accept-encoding": "gzip"}
    sizes = []
    for path in (f"{RECORDS}?offset=latest", RECORDS, BATCHES):
        connection.send(request("GET", path, headers=wants))
        reply = await connection.answer()
        sizes.append(b"content-encoding" in dict(reply.headers))
        commit(service, b'"%b"' % (b"x" * 2000))
    assert sizes == [False, True, False]
    connection.send(request("GET", RECORDS, headers=wants))
    assert values_of(gzip.decompress((await connection.answer()).body)) == ["x" * 2000] * 3


@pytest.mark.parametrize(
    "odd",
    [
        request("GET", RECORDS, headers={"if-none-match": '"x"'}),
        request("GET", BATCHES, headers={"range": "bytes=0-1"}),
        request("GET", RECORDS, headers={"origin": "http://elsewhere"}),
        request("GET", RECORDS, headers={"accept": "text/html"}).replace(
            b"accept:", b"accept: */*\r\naccept:"
        ),
        request("GET", RECORDS, b"{}"),
        request("GET", f"{RECORDS}?offset=ts:1"),
        request("GET", f"{OFFSETS}?timestamp=latest"),
        request("GET", RECORDS).replace(b"HTTP/1.1", b"HTTP/1.0"),
        request("GET", RECORDS, headers={"connection": "close"}),
        request("GET", RECORDS.replace("/0/", "/00/")),
        request("GET", RECORDS.replace("records", "segments")),
    ],
)
async def test_what_is_odd_is_left_to_asgi(service: Service, odd: bytes) -> None:
    """The hot way in only takes requests that it fully supports."""
    connection = (await knowing(service)).connect()
    connection.send(odd)
    assert connection.has_tasks
    await connection.answer()


async def test_a_refusal_needs_no_task_and_one_write(service: Service) -> None:
    """A full service refuses the request while it parses it."""
    connection = (await knowing(service)).connect()
    service.admission.phase = Phase.DRAINING
    connection.send(LOOK)
    assert not connection.has_tasks
    assert (await connection.answer()).status == 503
    assert len(connection.wire.writes) == 1
