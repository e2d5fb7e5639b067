"""Appends below ASGI: what a connection may do, and what it must not lose."""

import asyncio
import gzip
import json
import threading
from pathlib import Path

import pytest

from app.operations.service import Service
from engine.records.header import Codec
from tests.support.builders import new_batch
from tests.support.service import (
    BATCHES,
    OFFSETS,
    RAW,
    RECORDS,
    local,
    log_of,
    open_service,
)
from tests.support.time import ManualClock
from tests.support.wire import Connection, Listener, request, turn

pytestmark = pytest.mark.anyio

ONE = b'{"records":[{"key":"k","value":{"a":1}}]}'
APPEND = request("POST", RECORDS, ONE)
UNWAITED = request("POST", f"{RECORDS}?acks=1", ONE)
LOOK = request("GET", OFFSETS)


async def connected(service: Service) -> Connection:
    """A connection whose service knows the topic `events` and has cached its paths."""
    connection = Listener(service).connect()
    connection.send(request("PUT", "/v1/topics/events", b"{}"))
    assert (await connection.answer()).status == 201
    for path in (RECORDS, BATCHES):
        connection.send(request("GET", path))
        assert (await connection.answer()).status == 200
    return connection


async def begun(service: Service) -> Connection:
    """A connection whose service has appended to the topic: it need not open anything any more."""
    connection = await connected(service)
    connection.send(APPEND)
    assert (await connection.answer()).status == 201
    return connection


def hold_the_disk(service: Service) -> None:
    """Keep the flusher from waking: appends wait until `release_the_disk`."""
    local(service).commits.attach(asyncio.get_running_loop(), lambda: None)


def release_the_disk(service: Service) -> None:
    wake = local(service).runtime.committer.wake
    local(service).commits.attach(asyncio.get_running_loop(), wake)
    wake()


def end_of(service: Service) -> int:
    return log_of(service).watermarks.log_end_offset


async def test_an_append_needs_no_task_and_one_write(service: Service) -> None:
    """The answer is one write of head and body, and nothing of ASGI was started for it."""
    connection = await begun(service)
    before = len(connection.wire.writes)
    connection.send(APPEND)
    assert not connection.has_tasks
    assert (await connection.answer()).status == 201
    assert len(connection.wire.writes) == before + 1
    assert service.admission.requests == 0


async def test_a_body_may_come_in_pieces(service: Service) -> None:
    """Byte by byte a request is the same request, and its body is held once."""
    connection = await connected(service)
    for byte in UNWAITED:
        assert service.admission.body_bytes <= len(ONE)
        connection.send(bytes([byte]))
    assert (await connection.answer()).status == 201
    assert (end_of(service), service.admission.body_bytes) == (1, 0)


async def test_what_is_pipelined_is_answered_in_order(service: Service) -> None:
    """Requests that come together are answered one after the other, whichever lane has them."""
    connection = await connected(service)
    connection.send(APPEND + LOOK + UNWAITED + APPEND + LOOK)
    bodies = [json.loads((await connection.answer()).body) for _ in range(5)]
    assert [body.get("base_offset") for body in bodies] == [0, None, 1, 2, None]
    assert [bodies[1]["log_end_offset"], bodies[4]["high_watermark"]] == [1, 3]
    assert not connection.wire.is_reading_paused


async def test_nothing_overtakes_an_append_that_waits(service: Service) -> None:
    """After an append that waits for the disk, the next request waits for its response."""
    connection = await connected(service)
    written = len(connection.written)
    hold_the_disk(service)
    for count in (1, 2):
        connection.send(APPEND + LOOK if count == 1 else LOOK)
        await turn()
        await turn()
        assert connection.wire.is_reading_paused is (count > 1)
    assert len(connection.written) == written
    release_the_disk(service)
    assert [(await connection.answer()).status for _ in range(3)] == [201, 200, 200]


@pytest.mark.parametrize(
    "last",
    [
        request("POST", RECORDS, ONE, {"connection": "close"}),
        APPEND.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["close", "1.0"],
)
async def test_the_last_request_of_a_connection_is_answered_and_it_ends(
    service: Service, last: bytes
) -> None:
    """Connection: close and HTTP/1.0 mean what they mean in a task."""
    connection = await connected(service)
    connection.send(last)
    reply = await connection.answer()
    assert (reply.status, dict(reply.headers)[b"connection"]) == (201, b"close")
    assert connection.wire.is_closing()


async def test_a_stopping_server_answers_waiting_requests(service: Service) -> None:
    """A running append gets its response when the server stops, then the connection is closed."""
    connection = await connected(service)
    hold_the_disk(service)
    connection.send(APPEND)
    await turn()
    connection.protocol.shutdown()
    assert not connection.wire.is_closing()
    release_the_disk(service)
    reply = await connection.answer()
    assert (reply.status, dict(reply.headers)[b"connection"]) == (201, b"close")
    assert connection.wire.is_closing()


async def test_nothing_is_appended_after_the_last_answer(service: Service) -> None:
    """What came together with the last request of a connection that ends is not carried out."""
    connection = await connected(service)
    connection.send(UNWAITED[:-1])
    connection.protocol.shutdown()
    connection.send(UNWAITED[-1:] + UNWAITED)
    assert (await connection.answer()).status == 201
    assert connection.wire.is_closing()
    await turn()
    assert (end_of(service), service.admission.requests) == (1, 0)


async def test_a_client_that_leaves_in_the_middle_of_a_body_leaves_nothing(
    service: Service,
) -> None:
    """What its request held is given back, and nothing was appended."""
    connection = await connected(service)
    connection.send(APPEND[:-1])
    assert service.admission.requests == 1
    connection.hang_up()
    assert (service.admission.requests, service.admission.body_bytes) == (0, 0)
    assert end_of(service) == 0


async def test_a_client_that_leaves_before_the_answer_is_not_written_to(service: Service) -> None:
    """The append stays; its response is dropped, and the request is counted and released."""
    connection = await connected(service)
    hold_the_disk(service)
    connection.send(APPEND)
    await turn()
    written = len(connection.written)
    connection.hang_up()
    release_the_disk(service)
    other = Listener(service).connect()
    other.send(APPEND)
    assert (await other.answer()).status == 201
    assert (len(connection.written), service.admission.requests) == (written, 0)
    assert end_of(service) == 2


async def test_nothing_is_begun_on_a_connection_that_closes(service: Service) -> None:
    """Requests after the last response are not executed."""
    connection = await connected(service)
    connection.wire.close()
    connection.send(APPEND)
    await turn()
    assert (end_of(service), connection.has_tasks) == (0, False)


async def test_a_transport_without_half_close_is_closed_after_the_error(service: Service) -> None:
    """TLS connections cannot be half closed."""
    connection = await connected(service)
    before = len(connection.wire.writes)
    connection.send(b"no HTTP at all\r\n\r\n")
    assert connection.wire.writes[before].startswith(b"HTTP/1.1 400 ")
    assert connection.wire.is_closing()


async def test_a_body_that_does_not_come_is_refused(service: Service) -> None:
    """After `body_timeout_ms` it is 408; what still comes of it is passed over."""
    connection = await connected(service)
    connection.send(APPEND[:-1])
    connection.send(b"")
    reply = await connection.answer()
    assert (reply.status, json.loads(reply.body)["code"]) == (408, "request_timeout")
    connection.send(APPEND[-1:] + UNWAITED)
    assert (await connection.answer()).status == 201
    assert (end_of(service), service.admission.requests) == (1, 0)


async def test_a_body_for_which_there_is_no_room_is_refused(tmp_path: Path) -> None:
    """Bytes are counted as they arrive.

    Beyond the limit it is 503, and the connection continues.
    """
    async with open_service(tmp_path, max_in_flight_bytes=len(ONE)) as service:
        connection = await connected(service)
        connection.send(request("POST", RECORDS, ONE + b"   "))
        reply = await connection.answer()
        assert (reply.status, json.loads(reply.body)["code"]) == (503, "overloaded")
        connection.send(UNWAITED)
        assert (await connection.answer()).status == 201
        assert (end_of(service), service.admission.body_bytes) == (1, 0)


async def test_a_service_that_is_full_or_stops_says_so(tmp_path: Path) -> None:
    """A refusal needs no task; an incomplete body is not waited for."""
    async with open_service(tmp_path, max_in_flight_requests=1) as service:
        connection = await begun(service)
        ticket = service.admission.admit("another")
        for sent in (UNWAITED, UNWAITED[:-1]):
            connection.send(sent)
            assert not connection.has_tasks
            reply = await connection.answer()
            assert (reply.status, json.loads(reply.body)["code"]) == (503, "overloaded")
        ticket.close()
        connection.send(UNWAITED[-1:])
        connection.send(UNWAITED)
        assert (await connection.answer()).status == 201
        service.drain()
        connection.send(UNWAITED)
        assert json.loads((await connection.answer()).body)["code"] == "draining"
        connection.hang_up()
        assert (end_of(service), service.admission.requests) == (2, 0)


async def test_a_refusal_is_charged_once_and_needs_no_task(tmp_path: Path) -> None:
    """A quota that is used up is refused once, and nothing is held for it."""
    async with open_service(tmp_path, clock=ManualClock(), quota_bytes_in_per_second=20) as service:
        connection = await connected(service)
        connection.send(UNWAITED)
        assert (await connection.answer()).status == 201
        connection.send(UNWAITED)
        assert not connection.has_tasks
        assert (await connection.answer()).status == 429
        assert (end_of(service), service.admission.requests) == (1, 0)


async def test_headers_that_are_wrong_are_answered_before_the_body(service: Service) -> None:
    """A producer that is not complete is refused at once; its body is passed over."""
    connection = await connected(service)
    wrong = request("POST", RECORDS, ONE, {"producer-id": "1"})
    connection.send(wrong[: -len(ONE)])
    assert (await connection.answer()).status == 400
    connection.send(ONE + UNWAITED)
    assert (await connection.answer()).status == 201
    assert (end_of(service), service.admission.requests) == (1, 0)


async def test_a_disk_that_never_confirms_is_an_unknown_outcome(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 504 names the URL of the outcome, as in both ways in (E2)."""
    connection = await begun(service)
    monkeypatch.setattr(local(service).commits, "_sweeper", None)
    monkeypatch.setattr(local(service).commits, "_timeout_seconds", 0.001)
    log, confirms = log_of(service), threading.Event()
    commit = log.durability.commit
    # Not `hold_the_disk`: the flusher may still be awake from the append before.
    monkeypatch.setattr(log.durability, "commit", lambda: commit() if confirms.wait(30) else -1)
    producer = {"producer-id": "5", "producer-epoch": "0", "producer-sequence": "0"}
    try:
        connection.send(request("POST", RECORDS, ONE, producer))
        reply = await connection.answer()
    finally:
        confirms.set()
    assert (reply.status, json.loads(reply.body)["code"]) == (504, "append_outcome_unknown")
    assert b"producers/5/appends/0" in dict(reply.headers)[b"link"]


@pytest.mark.parametrize(("damage", "status"), [(0, 201), (1, 422)])
async def test_a_compressed_batch_is_appended_by_a_worker(
    service: Service, damage: int, status: int
) -> None:
    """It is not decoded on the loop; faults are explained all the same."""
    connection = await connected(service)
    batch = new_batch(50, codec=Codec.ZSTD)
    batch[-1] ^= damage
    connection.send(request("POST", BATCHES, bytes(batch), RAW))
    assert connection.has_tasks
    assert (await connection.answer()).status == status
    assert end_of(service) == (50 if status == 201 else 0)


@pytest.mark.parametrize(
    "header",
    [
        {"content-digest": "sha-256=:AAAA:"},
        {"content-encoding": "identity"},
        {"expect": "100-continue"},
        {"upgrade": "websocket"},
        {"idempotency-key": '"one"'},
        {"origin": "http://elsewhere"},
    ],
    ids=lambda header: next(iter(header)),
)
async def test_what_asks_for_more_is_left_to_the_other_lane(
    service: Service, header: dict[str, str]
) -> None:
    """Headers that the hot way in does not support are passed to FastAPI."""
    connection = await connected(service)
    connection.send(request("POST", RECORDS, ONE, header))
    assert connection.has_tasks
    await connection.answer()


async def test_a_body_too_large_for_the_loop_is_appended_by_a_worker(service: Service) -> None:
    """It is collected as any other; only taking it apart is not the loop's."""
    connection = await connected(service)
    large = json.dumps({"records": [{"value": "x" * service.settings.inline_append_bytes}]})
    sent = request("POST", f"{RECORDS}?acks=1", large.encode())
    for begin in range(0, len(sent), 50_000):
        assert not connection.has_tasks
        connection.send(sent[begin : begin + 50_000])
    assert connection.has_tasks
    assert (await connection.answer()).status == 201
    assert (end_of(service), service.admission.body_bytes) == (1, 0)


async def test_a_body_that_no_request_may_have_is_left_to_the_other_lane(
    service: Service,
) -> None:
    """The length decides before anything is collected."""
    connection = await connected(service)
    length = service.settings.max_request_bytes + 1
    connection.send(request("POST", RECORDS, ONE, {"content-length": str(length)}))
    assert connection.has_tasks
    assert (await connection.answer()).status == 413


async def test_a_client_that_does_not_read_is_not_written_to(service: Service) -> None:
    """While its answers pile up the next request waits in a task, where writing waits."""
    connection = await connected(service)
    connection.protocol.pause_writing()
    written = len(connection.written)
    connection.send(UNWAITED)
    assert connection.has_tasks
    for _ in range(5):
        await turn()
    assert len(connection.written) == written
    connection.protocol.resume_writing()
    assert (await connection.answer()).status == 201


async def test_a_topic_that_was_deleted_is_gone(service: Service) -> None:
    """The cache of URLs does not outlive the topic."""
    connection = await connected(service)
    statuses = []
    for each in (APPEND, request("DELETE", "/v1/topics/events"), APPEND):
        connection.send(each)
        statuses.append((await connection.answer()).status)
    assert statuses == [201, 204, 404]


async def test_answers_carry_the_headers_of_the_server(service: Service) -> None:
    """Date and the server's other headers, in their present values."""
    listener = Listener(service)
    await connected(service)
    connection = listener.connect()
    for date in (b"Sat, 21 Nov 2026 05:09:46 GMT", b"Sat, 21 Nov 2026 05:09:47 GMT"):
        listener.state.default_headers = [(b"date", date)]
        connection.send(UNWAITED)
        assert (await connection.answer()).headers[0] == (b"date", date)


async def test_a_long_problem_is_coded_as_on_the_other_lanes(service: Service) -> None:
    """A client that takes gzip gets the hundred faults of its records compressed."""
    connection = await connected(service)
    faulty = json.dumps({"records": [{"value": 1, "key": "k", "key_encoding": "base64"}] * 100})
    connection.send(request("POST", RECORDS, faulty.encode(), {"accept-encoding": "gzip"}))
    reply = await connection.answer()
    assert (reply.status, dict(reply.headers)[b"content-encoding"]) == (422, b"gzip")
    assert len(json.loads(gzip.decompress(reply.body))["errors"]) == 100


async def test_an_append_whose_client_leaves_is_not_decoded_any_further(
    service: Service,
) -> None:
    """A compressed batch waits for a worker; once its client has gone, nothing is appended."""
    batch = bytes(new_batch(90, value=b"x" * 1000, codec=Codec.GZIP))
    append = request("POST", f"{BATCHES}?acks=1", batch, RAW)
    connection = await connected(service)
    assert (await connection.ask(append)).status == 201
    gate = threading.Event()
    blocked = [
        asyncio.create_task(service.workers.write(lambda: gate.wait(60)))
        for _ in range(service.settings.write_threads)
    ]
    await turn()
    connection.send(append)
    tasks = list(connection.protocol.tasks)
    connection.hang_up()
    gate.set()
    await asyncio.gather(*tasks, *blocked)
    assert (len(tasks), end_of(service)) == (1, 90)
    assert service.admission.requests == service.admission.body_bytes == 0
