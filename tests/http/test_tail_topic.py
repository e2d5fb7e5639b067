"""Tails of all partitions of a topic: protocol rules W7 and W8."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from app.server.process import compose
from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin
from schemas.tail import TopicTailEnd, TopicTailEvent, TopicTailOffsets
from tests.support.events import Event, Listener, listening, quiet
from tests.support.service import RAW, Api, running

pytestmark = pytest.mark.anyio

PARTITIONS = 3
TOPIC = "/v1/topics/events"


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service with a topic `events` of three partitions."""
    # Nothing but a commit or a change wakes a tail.
    async with running(
        tmp_path, max_fetch_partitions=PARTITIONS + 1, tail_heartbeat_ms=600_000
    ) as api:
        await api.create(partitions=PARTITIONS, retention_ms="-1")
        yield api


def tailing(
    api: Api, query: str = "", last_event_id: str = ""
) -> AbstractAsyncContextManager[Listener]:
    target = f"{TOPIC}/tail?{query}"
    return listening(compose(api.service), target, last_event_id=last_event_id)


async def put(api: Api, partition: int, *values: object) -> None:
    await api.append(*values, path=f"{TOPIC}/partitions/{partition}/records")


def told(events: list[Event]) -> dict[int, list[object]]:
    """The values of each partition, in the order of the events."""
    found: dict[int, list[object]] = {number: [] for number in range(PARTITIONS + 1)}
    for event in events:
        if event.name == "records":
            found[event.data["partition"]] += event.values
    return found


def at(api: Api, *next_offsets: int) -> str:
    """Return the id of an event after these offsets."""
    places = [f"{number}.0:{offset}" for number, offset in enumerate(next_offsets)]
    return f"{api.service.topic('events').topic_id};{','.join(places)}"


async def test_it_counts_as_a_tail_and_not_as_a_running_request(api: Api) -> None:
    """Otherwise readers without end would take the places of appends."""
    admission = api.service.admission
    async with tailing(api) as tail:
        await tail.read(1)
        assert (admission.tails, admission.requests) == (1, 0)
    assert (admission.tails, admission.requests) == (0, 0)


async def test_it_tells_what_is_there_and_every_commit_of_each_partition(api: Api) -> None:
    """The data is that of readRecords; the id names every partition's next offset (W7)."""
    await put(api, 0, "a", "b")
    await put(api, 2, "c")
    async with tailing(api) as tail:
        assert tail.answered["content-type"] == "text/event-stream; charset=utf-8"
        begin, *old = await tail.read(3)
        assert (begin.name, begin.id) == ("offsets", at(api, 0, 0, 0))
        offsets = TypeAdapter(TopicTailOffsets).validate_python(begin.data)
        assert [one.high_watermark for one in offsets.partitions] == [2, 0, 1]
        assert bytes(tail.body).startswith(b"retry: 1000\nevent: offsets\n")
        assert told(old)[0] == ["a", "b"]
        assert told(old)[2] == ["c"]
        assert old[-1].id == at(api, 2, 0, 1)
        await quiet(api)
        await put(api, 1, "d")
        event = await tail.next()
        page = await api.client.get(f"{TOPIC}/partitions/1/records")
        assert (event.name, event.id, event.data) == ("records", at(api, 2, 1, 1), page.json())
        shown = {"event": event.name, "id": event.id, "data": "{}"}
        TypeAdapter(TopicTailEvent).validate_python(shown)


async def test_it_resumes_exactly_after_the_last_event(api: Api) -> None:
    """However often it is cut, no record of any partition comes twice or is lost (W8)."""
    last, seen = "", []
    for number in range(6):
        await put(api, number % PARTITIONS, 2 * number, 2 * number + 1)
        await put(api, (number + 1) % PARTITIONS, -number)
        async with tailing(
            api, "max_bytes=1&offset=latest" if last else "", last_event_id=last
        ) as tail:
            _, event = await tail.read(2)  # then it is cut off, with more to come
            seen.append(event)
            last = event.id
    async with tailing(api, last_event_id=last) as tail:
        while (event := await tail.next()).id != at(api, 6, 6, 6):
            seen.append(event)
    seen.append(event)
    values = told(seen)
    for number in range(PARTITIONS):
        stored = (await api.client.get(f"{TOPIC}/partitions/{number}/records")).json()["records"]
        assert values[number] == [record["value"] for record in stored]


async def test_added_partitions_end_it_and_are_followed_from_their_start(api: Api) -> None:
    """At once, not with its next event; the reason is retryable.

    A partition that the id does not name begins at `earliest` (W8).
    """
    async with tailing(api, "offset=latest") as tail:
        await tail.next()
        await quiet(api)
        await api.client.patch(TOPIC, json={"partitions": PARTITIONS + 1})
        (end,) = await tail.to_end()
        await put(api, 3, "first of the new one")
        await put(api, 0, "not told any more")
    what = TypeAdapter(TopicTailEnd).validate_python(end.data)
    assert (what.reason, what.retryable, end.id) == ("partitions_added", True, at(api, 0, 0, 0))
    async with tailing(api, "offset=latest", last_event_id=end.id) as tail:
        events = await tail.read(3)
        assert told(events)[3] == ["first of the new one"]
        assert told(events)[0] == ["not told any more"]


async def test_what_is_not_shown_moves_the_id_of_its_partition(api: Api) -> None:
    """Of an aborted transaction the tail only learns the offsets after it (W7)."""
    batch = build_batch(
        [(1, None, b'"gone"', ())],
        base_sequence=0,
        is_transactional=True,
        producer_id=5,
        producer_epoch=0,
    )
    await api.client.post(f"{TOPIC}/partitions/1/batches", content=bytes(batch), headers=RAW)
    marker = build_end_marker(
        ControlType.ABORT, timestamp=2, coordinator_epoch=0, producer_id=5, producer_epoch=0
    )
    api.log(partition=1).append(marker, origin=AppendOrigin.COORDINATOR)
    api.log(partition=1).durability.commit()
    async with tailing(api, "isolation=read_committed&offsets=string") as tail:
        _, skip = await tail.read(2)
        assert (skip.name, skip.id) == ("offsets", at(api, 0, 2, 0))
        (only,) = skip.data["partitions"]
        assert (only["partition"], only["next_offset"]) == (1, "2")


async def test_an_idle_tail_shows_that_it_is_alive(tmp_path: Path) -> None:
    """Every heartbeat has the offsets of all partitions (W7)."""
    async with running(tmp_path, tail_heartbeat_ms=10) as api:
        await api.create(partitions=2)
        async with tailing(api) as tail:
            for event in await tail.read(3):
                assert (event.name, event.id) == ("offsets", at(api, 0, 0))
                assert len(event.data["partitions"]) == 2


@pytest.mark.parametrize(
    ("query", "last", "status", "code"),
    [
        ("offset=3", "", 400, "malformed_request"),
        ("", "3", 400, "malformed_request"),
        ("", "0:1,0:2", 400, "malformed_request"),
        ("", "0:1,7:2", 400, "malformed_request"),
        ("", "0:9223372036854775808", 400, "malformed_request"),
        ("", "99999999999:0", 400, "malformed_request"),
        ("", "4294967296.0:0", 400, "malformed_request"),
        ("", "0.9999999999:0", 400, "malformed_request"),
        ("", ";0:0", 410, "offset_below_log_start"),
        ("", "AAAAAAAAAAAAAAAAAAAAAA;0.0:1", 409, "log_replaced"),
        ("", "0.1:1", 409, "log_replaced"),
        ("", "0:0", 410, "offset_below_log_start"),
        ("", "0:1,1:1", 416, "offset_beyond_log_end"),
    ],
)
async def test_a_tail_that_cannot_begin_is_refused_as_a_read(
    api: Api, query: str, last: str, status: int, code: str
) -> None:
    """With a status and a problem document, before any event (W3)."""
    await put(api, 0, 1)
    await api.client.post(f"{TOPIC}/partitions/0/delete-records", json={"before_offset": 1})
    headers = {"last-event-id": last} if last else {}
    answer = await api.client.get(f"{TOPIC}/tail?{query}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_too_many_partitions_and_no_topic_are_refused(api: Api) -> None:
    """The limit is that of fetchMany and is named (W7)."""
    await api.create("wide", partitions=PARTITIONS + 2)
    answer = await api.client.get("/v1/topics/wide/tail")
    assert (answer.status_code, answer.json()["limit"]) == (413, "max_fetch_partitions")
    answer = await api.client.get("/v1/topics/none/tail")
    assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")
    answer = await api.client.get(f"{TOPIC}/tail", headers={"accept": "application/json"})
    assert answer.status_code == 406


async def test_a_deleted_topic_ends_it(api: Api) -> None:
    """The last event has the problem that a request would get (W4)."""
    async with tailing(api) as tail:
        await tail.next()
        await quiet(api)
        await api.client.delete(TOPIC)
        (end,) = await tail.to_end()
        assert (end.name, end.data["reason"]) == ("end", "topic_not_found")
        assert end.data["problem"]["instance"] == f"{TOPIC}/tail"
