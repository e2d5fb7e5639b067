"""Tails with server-sent events, their start and continuation: protocol rules W1 to W3 and W6."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from app.server.process import compose
from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin
from tests.support.events import TAIL, Event, listening, metrics, quiet, tailing
from tests.support.service import BATCHES, OFFSETS, RAW, Api, running

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/events"
PARTITION = f"{TOPIC}/partitions/0"


def at(api: Api, next_offset: int) -> str:
    """Return the id of an event after which the tail goes on at an offset."""
    return f"{api.log().reader.log_id}:{next_offset}"


async def test_a_tail_tells_what_is_there_and_every_commit(api: Api) -> None:
    """First where it stands, then the records that are there, then each commit as it comes (W1)."""
    await api.append("old")
    async with tailing(api) as tail:
        begin, old = await tail.read(2)
        assert (begin.name, begin.id, begin.data["high_watermark"]) == ("offsets", at(api, 0), 1)
        assert (old.name, old.id, old.values) == ("records", at(api, 1), ["old"])
        for number in range(3):
            await quiet(api)
            await api.append(number, -number)
            event = await tail.next()
            assert (event.offset, event.values) == (3 + 2 * number, [number, -number])
            assert event.data["next_offset"] == event.data["high_watermark"] == 3 + 2 * number


async def test_the_data_is_what_a_read_answers(api: Api) -> None:
    """An event has the JSON of readRecords, with the same choice of encoding and of offsets."""
    await api.append({"a": 1}, key="k", headers=[{"key": "h", "value": "x"}])
    for query in ("", "encoding=base64", "offsets=string"):
        page = await api.client.get(f"{PARTITION}/records?{query}")
        async with tailing(api, query) as tail:
            _, records = await tail.read(2)
        assert records.data == page.json()
    assert records.data["next_offset"] == "1"


async def test_the_head_is_that_of_a_stream(api: Api) -> None:
    """It is not cached or buffered; it has the log's offsets and the delay of a reconnect."""
    await api.append(0, 1)
    async with tailing(api, "offset=1") as tail:
        head = tail.answered
        assert head["content-type"] == "text/event-stream; charset=utf-8"
        assert (head["cache-control"], head["x-accel-buffering"]) == ("no-store", "no")
        assert (head["log-end-offset"], head["log-next-offset"]) == ("2", "1")
        assert f"{TAIL}?offset=1&log_id={api.log().reader.log_id}" in head["link"]
        begin = f"retry: 1000\nevent: offsets\nid: {api.log().reader.log_id}:1\n"
        assert tail.body.startswith(begin.encode())


async def test_a_tail_resumes_after_the_last_event(api: Api) -> None:
    """Last-Event-ID wins over the URL; however often it is cut, nothing is twice or lost (W2)."""
    last, seen = "", []
    for number in range(5):
        await api.append(2 * number, 2 * number + 1)
        async with tailing(api, "offset=0", last_event_id=last) as tail:
            _, records = await tail.read(2)
            seen += records.values
            last = records.id
    assert seen == list(range(10))


async def test_a_tail_that_was_told_nothing_resumes_too(api: Api) -> None:
    """The first event has an id: what comes while a client of `latest` is away is not lost."""
    await api.append("before")
    async with tailing(api, "offset=latest") as tail:
        begin = await tail.next()
    await api.append("while away")
    async with tailing(api, "offset=latest", last_event_id=begin.id) as tail:
        _, records = await tail.read(2)
    assert records.values == ["while away"]


async def test_an_id_of_the_log_before_is_refused(api: Api) -> None:
    """Nothing of the new log is skipped for a client that was away (W2)."""
    await api.append(0, 1, 2)
    async with tailing(api) as tail:
        _, records = await tail.read(2)
    etag = (await api.client.get(OFFSETS)).headers["etag"]
    headers = {"if-match": etag}
    await api.client.post(f"{PARTITION}/truncate", json={"to_offset": 0}, headers=headers)
    await api.append("a", "b", "c", "d")
    for query, last in (("", records.id), (f"lastEventId={records.id}", "")):
        async with tailing(api, query, stalls_after=0, last_event_id=last) as tail:
            assert tail.status == 409
            assert b"log_replaced" in tail.body


async def test_an_idle_tail_says_that_it_lives(tmp_path: Path) -> None:
    """Every heartbeat has the present marks, and the id to resume from."""
    async with running(tmp_path, tail_heartbeat_ms=10) as api:
        await api.create()
        async with tailing(api) as tail:
            beats = await tail.read(3)
            assert {(beat.name, beat.id) for beat in beats} == {("offsets", at(api, 0))}
            api.log().append(build_batch([(1, None, b"1", ())]))  # not committed
            while (await tail.next()).data["log_end_offset"] == 0:
                pass


async def test_line_breaks_inside_json_do_not_break_events(api: Api) -> None:
    """Whatever whitespace was stored between tokens, the data is one line."""
    body = b'{"records":[{"value":[1,\r\n2,\n\n\n3]},{"value":"a\\nb"}]}'
    headers = {"content-type": "application/json"}
    await api.client.post(f"{PARTITION}/records", content=body, headers=headers)
    async with tailing(api) as tail:
        _, records = await tail.read(2)
    assert records.values == [[1, 2, 3], "a\nb"]


async def test_large_data_comes_in_events_of_bounded_size(tmp_path: Path) -> None:
    """max_bytes bounds the read of an event, max_tail_event_bytes its data."""
    async with running(tmp_path, max_tail_event_bytes=1_000, inline_read_bytes=100) as api:
        await api.create()
        await api.append(*("x" * 300 for _ in range(20)))
        await api.append("last")
        async with tailing(api, "max_bytes=1") as tail:
            events: list[Event] = []
            while not events or events[-1].offset != 21:
                events.append(await tail.next())
        counts = [len(event.values) for event in events[1:]]
        assert sum(counts) == 21
        assert max(counts[:-1]) <= 4
        assert counts[-1] == 1


async def test_tails_at_one_place_share_one_read(api: Api) -> None:
    """However many follow a partition, a commit is read once for all with the same format."""
    async with (
        tailing(api, "offset=0") as one,
        tailing(api) as two,
        tailing(api, "encoding=base64") as odd,
    ):
        await quiet(api, 3)
        reads = counted_reads(api)
        await api.append("for all")
        for tail in (one, two):
            assert (await tail.read(2))[1].values == ["for all"]
        assert (await odd.read(2))[1].values == ["ImZvciBhbGwi"]
    assert len(reads) == 2


def counted_reads(api: Api) -> list[object]:
    """The reads of the log from now on."""
    reads: list[object] = []
    log = api.log()
    real = log.reader.read

    def counted(*arguments: Any, **options: Any) -> object:
        found = real(*arguments, **options)
        reads.append(found)
        return found

    log.reader.read = counted  # type: ignore[method-assign, assignment]  # to count
    return reads


async def test_what_is_made_on_a_worker_is_shared_too(tmp_path: Path) -> None:
    """A page too large for the event loop is made once, and everyone gets it."""
    async with running(tmp_path, inline_read_bytes=0) as api:
        await api.create()
        async with tailing(api) as one, tailing(api) as two:
            await quiet(api, 2)
            reads = counted_reads(api)
            await api.append("for both")
            for tail in (one, two):
                assert (await tail.read(2))[1].values == ["for both"]
        assert len(reads) == 1


async def test_read_committed_waits_for_the_end_of_a_transaction(api: Api) -> None:
    """An open transaction is not sent.

    A committed one is, and an aborted one only moves the offset.
    """
    async with tailing(api, "isolation=read_committed") as tail:
        await tail.next()
        for sequence, end in enumerate((ControlType.COMMIT, ControlType.ABORT)):
            await quiet(api)
            batch = build_batch(
                [(1, None, b'"%d"' % sequence, ())],
                base_sequence=sequence,
                is_transactional=True,
                producer_id=5,
                producer_epoch=0,
            )
            await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
            marker = build_end_marker(
                end, timestamp=2, coordinator_epoch=0, producer_id=5, producer_epoch=0
            )
            api.log().append(marker, origin=AppendOrigin.COORDINATOR)
            api.log().durability.commit()
            api.service.tail.wake(api.log())
            event = await tail.next()
            if end is ControlType.COMMIT:
                assert (event.name, event.id, event.values) == ("records", at(api, 2), ["0"])
            else:
                assert (event.name, event.id) == ("offsets", at(api, 4))


@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ("offset=3", {}, 416, "offset_beyond_log_end"),
        ("offset=0", {}, 410, "offset_below_log_start"),
        ("", {"last_event_id": "0"}, 410, "offset_below_log_start"),
        ("", {"last_event_id": "1-2"}, 400, "malformed_request"),
        ("", {"last_event_id": "?:1"}, 400, "malformed_request"),
        ("", {"last_event_id": "AAAAAAAAAAAAAAAAAAAAAA.0:1"}, 409, "log_replaced"),
        ("lastEventId=AAAAAAAAAAAAAAAAAAAAAA.0:1", {}, 409, "log_replaced"),
        ("lastEventId=0", {}, 410, "offset_below_log_start"),
        ("lastEventId=0", {"last_event_id": "3"}, 416, "offset_beyond_log_end"),
        ("", {"last_event_id": "9" * 20}, 400, "malformed_request"),
        ("", {"last_event_id": "9" * 19}, 400, "malformed_request"),
        ("", {"last_event_id": str(2**63 - 1)}, 416, "offset_beyond_log_end"),
        ("offset=what", {}, 400, "malformed_request"),
        ("min_bytes=1", {}, 400, "malformed_request"),
        ("log_id=AAAAAAAAAAAAAAAAAAAAAA.0", {}, 409, "log_replaced"),
        ("", {"accept": "application/json"}, 406, "not_acceptable"),
    ],
)
async def test_what_cannot_begin_is_an_ordinary_error(
    api: Api, query: str, headers: dict[str, str], status: int, code: str
) -> None:
    """Before the first event a tail is a request like any other: a status and a problem (W3)."""
    await api.append(0, 1)
    await api.client.post(f"{PARTITION}/delete-records", json={"before_offset": 1})
    async with tailing(api, query, stalls_after=0, **headers) as tail:
        assert tail.status == status
        assert code.encode() in tail.body
    assert api.service.admission.tails == 0


@pytest.mark.parametrize(("where", "values"), [("earliest", [1]), ("latest", [2])])
async def test_a_tail_that_missed_the_log_can_be_moved(
    api: Api, where: str, values: list[int]
) -> None:
    """With on_out_of_range it begins at the end it names, even with an id that is gone."""
    await api.append(0)
    await api.append(1)
    await api.client.post(f"{PARTITION}/delete-records", json={"before_offset": 1})
    async with tailing(api, f"on_out_of_range={where}", last_event_id="0") as tail:
        assert (await tail.next()).id == at(api, 1 if where == "earliest" else 2)
        if where == "latest":
            await quiet(api)
            await api.append(2)
        assert (await tail.next()).values == values


async def test_one_tail_too_many_is_refused(tmp_path: Path) -> None:
    """max_tails bounds them; one that ends makes room (W6)."""
    async with running(tmp_path, max_tails=1) as api:
        await api.create()
        async with tailing(api) as first:
            assert first.status == 200
            async with tailing(api) as second:
                assert second.status == 503
                assert b'"limit":"max_tails"' in second.body
        async with tailing(api) as third:
            assert third.status == 200


async def test_a_disconnected_client_leaves_nothing(api: Api) -> None:
    """No waiter, no ticket, no task."""
    tasks = len(asyncio.all_tasks())
    for _ in range(3):
        async with tailing(api) as tail:
            await tail.next()
            await quiet(api)
            assert api.service.admission.tails == 1
        await checkpoint()
        admission = api.service.admission
        held = (admission.tails, admission.requests, admission.answer_bytes)
        assert (api.service.tail.waiting, held) == (0, (0, 0, 0))
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > tasks:
            await checkpoint()
    assert 'tidelog_tail_ends_total{reason="client_gone"} 3.0' in await metrics(api)


async def test_tails_and_polls_are_counted(api: Api) -> None:
    """The gauges show the waiting clients."""
    poll = asyncio.create_task(api.client.get(f"{PARTITION}/records?max_wait_ms=60000"))
    async with tailing(api):
        await quiet(api, 2)
        lines = await metrics(api)
        assert "tidelog_tail_clients 1.0" in lines
        assert "tidelog_waiting_readers 1.0" in lines
        await api.append(1)
        await poll


async def test_a_head_alone_ends(api: Api) -> None:
    """HEAD has the headers of the stream and no stream."""
    async with listening(compose(api.service), TAIL, method="HEAD") as tail:
        await tail.to_end()
        assert (tail.status, bytes(tail.body)) == (200, b"")
        assert tail.answered["content-type"] == "text/event-stream; charset=utf-8"
    assert api.service.admission.tails == 0


async def test_no_reader_of_lines_sees_more_lines_than_there_are(api: Api) -> None:
    """Python's and other lenient readers end a line at what JSON leaves as it is in a text."""
    text = "a\u2028b\u2029c\u0085d\x1ce\x0bf"
    await api.append(text, {text: text})
    async with tailing(api, "offset=0") as tail:
        _, records = await tail.read(2)
        assert records.values == [text, {text: text}]
        received = bytes(tail.body).decode()
    assert received.splitlines() == received.replace("\r\n", "\n").split("\n")[:-1]


async def test_an_event_is_a_line_that_go_reads(api: Api) -> None:
    """`bufio.Scanner` gives up at 64 KiB, and with it the whole tail, without an error."""
    values = [{"number": number, "text": "\u2028\u0085" * (number % 20)} for number in range(3000)]
    await api.append(*values)
    async with tailing(api, "offset=0") as tail:
        seen: list[object] = []
        while len(seen) < len(values):
            event = await tail.next()
            if event.name == "records":
                seen += event.values
        assert max(map(len, bytes(tail.body).split(b"\n"))) < 48 * 1024
    assert seen == values
