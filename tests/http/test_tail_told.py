"""Tails that are served in the commit's callback: no task is woken, and nothing is lost."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from app.operations.service import Service
from app.telemetry.request_log import log_access
from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin
from tests.support.service import RECORDS, log_of, open_in_memory
from tests.support.wire import Connection, Listener, request, turn

pytestmark = pytest.mark.anyio

TAIL = request("GET", "/v1/topics/events/partitions/0/tail")


@pytest.fixture
async def service(anyio_backend: str) -> AsyncIterator[Service]:
    """An open service whose tails' events above 4 KiB are made by workers."""
    async with open_in_memory() as service:
        yield service


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop turn until that holds."""
    async with asyncio.timeout(60):
        while not holds():
            await turn()


async def tails_of(service: Service, count: int = 1) -> list[Connection]:
    """Tails of the new topic `events` that wait for its first commit."""
    listener = Listener(service)
    first = listener.connect()
    for setting_up in (request("PUT", "/v1/topics/events", b"{}"), request("GET", RECORDS)):
        first.send(setting_up)
        await first.answer()
    tails = [listener.connect() for _ in range(count)]
    for tail in tails:
        tail.send(TAIL)
    await until(lambda: service.tail.waiting == count)
    return tails


def commit(service: Service, *values: bytes) -> None:
    """Append a batch that is on disk on return, and notify its readers."""
    log = log_of(service)
    log.append(build_batch([(1, None, value, ()) for value in values]))
    log.durability.commit()
    service.tail.wake(log)


def events_of(tail: Connection) -> list[tuple[str, dict[str, object]]]:
    """Names and data of all events so far; every chunk of the body is whole."""
    _, _, rest = tail.written.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        end = int(size, 16)
        body += rest[:end]
        assert rest[end : end + 2] == b"\r\n"
        rest = rest[end + 2 :]
    events = []
    for event in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in event.split("\n") if ": " in line)
        if "data" in fields:
            events.append((fields["event"], json.loads(fields["data"])))
    return events


def values_of(tail: Connection) -> list[object]:
    """The values of all records that the tail has sent."""
    told = (data["records"] for name, data in events_of(tail) if name == "records")
    return [record["value"] for records in told for record in records]  # type: ignore[attr-defined]  # of JSON


async def test_tails_are_told_in_the_turn_of_the_commit(service: Service) -> None:
    """Sixteen tails: one look at the log, one write each of the same bytes, and no task runs."""
    tails = await tails_of(service, 16)
    before = [len(tail.wire.writes) for tail in tails]
    commit(service, b'"one"', b'"two"')
    assert [len(tail.wire.writes) for tail in tails] == [count + 1 for count in before]
    assert len({tail.wire.writes[-1] for tail in tails}) == 1
    commit(service, b'"three"')
    assert all(values_of(tail) == ["one", "two", "three"] for tail in tails)
    assert service.tail.waiting == len(tails)


async def test_what_is_told_in_a_commit_counts_as_sent(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """In the access line, as what the task sends."""
    caplog.set_level("INFO", logger="tidelog.access")
    service.journal.observe(log_access)
    (tail,) = await tails_of(service)
    commit(service, b'"%b"' % (b"x" * 1_000))
    tail.hang_up()
    await until(lambda: "tail" in caplog.text)
    (line,) = (one for one in caplog.records if "/tail" in one.getMessage())
    sent_bytes = len(tail.written.partition(b"\r\n\r\n")[2])
    assert 1_000 < sent_bytes - 64 < vars(line)["sent_bytes"] <= sent_bytes


async def test_a_client_that_is_behind_is_told_when_it_has_room(service: Service) -> None:
    """What cannot be written at once is the task's to send, in order and only once."""
    (tail,) = await tails_of(service)
    tail.protocol.pause_writing()
    before = len(tail.wire.writes)
    commit(service, b"1")
    for _ in range(5):
        await turn()
    assert len(tail.wire.writes) == before
    commit(service, b"2")
    tail.protocol.resume_writing()
    await until(lambda: service.tail.waiting == 1)
    commit(service, b"3")
    assert values_of(tail) == [1, 2, 3]


async def test_what_was_found_before_a_commit_is_not_told_after_it(service: Service) -> None:
    """A client that had no room for the first commit gets both with the second, in one turn."""
    behind, other = await tails_of(service, 2)
    behind.protocol.pause_writing()
    commit(service, b"1")
    behind.protocol.resume_writing()
    commit(service, b"2")
    await until(lambda: service.tail.waiting == 2)
    commit(service, b"3")
    assert values_of(behind) == values_of(other) == [1, 2, 3]


async def test_much_is_made_by_a_worker(service: Service) -> None:
    """A large event is not built in the commit's turn of the loop."""
    tails = await tails_of(service, 2)
    before = [len(tail.wire.writes) for tail in tails]
    commit(service, b'"%b"' % (b"x" * 5000))
    assert [len(tail.wire.writes) for tail in tails] == before
    await until(lambda: all(len(tail.wire.writes) > before[0] for tail in tails))
    await until(lambda: service.tail.waiting == 2)
    commit(service, b"1")
    assert all(values_of(tail) == ["x" * 5000, 1] for tail in tails)


async def test_what_shows_no_records_is_told_by_the_task(service: Service) -> None:
    """After a transaction marker there are no records to send, but the offset advances."""
    (tail,) = await tails_of(service)
    log = log_of(service)
    marker = build_end_marker(
        ControlType.COMMIT, timestamp=2, coordinator_epoch=0, producer_id=5, producer_epoch=0
    )
    log.append(marker, origin=AppendOrigin.COORDINATOR)
    log.durability.commit()
    service.tail.wake(log)
    await until(lambda: len(events_of(tail)) == 2)
    name, data = events_of(tail)[-1]
    assert (name, data["next_offset"]) == ("offsets", 1)


async def test_a_wake_without_news_is_looked_at_by_the_task(service: Service) -> None:
    """Nothing is sent twice, whatever wakes the tail."""
    (tail,) = await tails_of(service)
    commit(service, b"1")
    service.tail.wake(log_of(service))
    await until(lambda: service.tail.waiting == 1)
    assert values_of(tail) == [1]


async def test_a_service_that_stops_ends_its_tails(service: Service) -> None:
    """The last event says why; it follows all records."""
    (tail,) = await tails_of(service)
    commit(service, b"1")
    service.drain()
    await until(lambda: tail.written.endswith(b"0\r\n\r\n"))
    assert values_of(tail) == [1]
    name, data = events_of(tail)[-1]
    assert (name, data["reason"]) == ("end", "draining")


async def test_a_client_that_went_is_told_nothing(service: Service) -> None:
    """A commit that comes before the tail has noticed writes nothing."""
    (tail,) = await tails_of(service)
    before = len(tail.wire.writes)
    tail.hang_up()
    commit(service, b"1")
    await until(lambda: service.tail.waiting == 0)
    assert len(tail.wire.writes) == before


@pytest.mark.parametrize(
    ("later_s", "told"), [(700, "records"), (10_000_000, "end")], ids=["heartbeat", "over"]
)
async def test_what_is_due_first_is_the_tasks(
    service: Service, monkeypatch: pytest.MonkeyPatch, later_s: int, told: str
) -> None:
    """A heartbeat or the end that is due by the time of a commit is not put off by it."""
    (tail,) = await tails_of(service)
    loop = asyncio.get_running_loop()
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + later_s)
    before = len(tail.wire.writes)
    commit(service, b"1")
    assert len(tail.wire.writes) == before
    await until(lambda: len(events_of(tail)) == 2)
    assert events_of(tail)[-1][0] == told
