"""Waiting at the end of a log, on a loop of the test's own."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from anyio.lowlevel import checkpoint

from app.http.answers import Message
from app.operations.wait import DisconnectWatcher, Tail, Watch
from engine.log.log import Log
from tests.support.builders import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def log() -> Log:
    return World().open_log()


async def silence() -> Message:
    """What a client sends that stays and says nothing."""
    await asyncio.get_running_loop().create_future()
    return {}


def then_gone(event: asyncio.Event) -> Callable[[], Awaitable[Message]]:
    """What a client sends that hangs up at the event."""

    async def receive() -> Message:
        await event.wait()
        return {"type": "http.disconnect"}

    return receive


@contextmanager
def watching(tail: Tail, *logs: Log) -> Iterator[Watch]:
    """A reader whose client stays."""
    with DisconnectWatcher(silence) as departure, tail.watch(logs, departure) as watch:
        yield watch


async def waits(tail: Tail, watch: Watch) -> asyncio.Task[None]:
    """A reader that waits, and has begun to."""
    before = tail.waiting
    task = asyncio.create_task(watch.wait())
    while tail.waiting == before:
        await checkpoint()
    return task


async def test_readers_are_woken_together(log: Log) -> None:
    """Every waiter of a log is woken once, and none stays registered."""
    tail = Tail()
    with watching(tail, log) as one, watching(tail, log) as two:
        readers = [await waits(tail, watch) for watch in (one, two)]
        tail.wake_all()
        await asyncio.gather(*readers)
        again = await waits(tail, one)
        tail.wake(log)
        await again
        assert tail.waiting == 0
    tail.wake(log)


async def test_a_reader_of_several_logs_is_woken_by_any(log: Log) -> None:
    """One move is enough, and of any of them."""
    tail, other = Tail(), World().open_log()
    with watching(tail, log, other) as watch:
        for moved in (log, other):
            reader = await waits(tail, watch)
            tail.wake(moved)
            await asyncio.wait_for(reader, 30)
            assert tail.waiting == 0


async def test_a_move_while_nobody_waits_is_not_lost(log: Log) -> None:
    """A reader that was busy looks again before it waits; any number of moves are one."""
    tail = Tail()
    with watching(tail, log) as watch:
        tail.wake(log)
        tail.wake(log)
        await asyncio.wait_for(watch.wait(), 30)
        reader = await waits(tail, watch)
        tail.wake(log)
        tail.wake(log)
        await asyncio.wait_for(reader, 30)


async def test_a_reader_is_woken_by_its_time(log: Log) -> None:
    """The earliest time counts; a later one may come early, never late."""
    tail, loop = Tail(), asyncio.get_running_loop()
    with watching(tail, log) as watch, watching(tail, log) as other:
        reader = await waits(tail, other)
        now = loop.time()
        watch.wake_by(now + 0.02)
        watch.wake_by(now + 60)
        lateness = [watch.is_late]
        await asyncio.wait_for(watch.wait(), 30)
        lateness.append(watch.is_late)
        assert loop.time() >= now + 0.01
        watch.wake_by(loop.time() + 60)
        assert [*lateness, watch.is_late] == [False, True, False]
        watch.wake_by(loop.time() + 0.01)
        await asyncio.wait_for(watch.wait(), 30)
        assert not reader.done()
        tail.wake(log)
        await reader


async def test_a_cancelled_reader_is_not_woken(log: Log) -> None:
    """A cancelled wait leaves nothing that a wake-up could fail on."""
    tail = Tail()
    with watching(tail, log) as watch:
        reader = await waits(tail, watch)
        reader.cancel()
        tail.wake(log)
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert tail.waiting == 0
        tail.wake(log)


async def test_a_client_that_hangs_up_ends_its_wait(log: Log) -> None:
    """Whether it went while its reader waited, or before it was watched."""
    tail, hangs_up = Tail(), asyncio.Event()
    with DisconnectWatcher(then_gone(hangs_up)) as departure:
        with tail.watch([log], departure) as watch:
            reader = await waits(tail, watch)
            hangs_up.set()
            await asyncio.wait_for(reader, 30)
            assert departure.is_gone
        with tail.watch([log], departure) as late:
            await asyncio.wait_for(late.wait(), 30)
    assert tail.waiting == 0


async def test_a_departure_is_noticed_behind_a_body(log: Log) -> None:
    """Messages before the disconnect are ignored, and an unwatched client may disconnect."""
    messages = ["http.request", "http.request", "http.disconnect"]

    async def receive() -> Message:
        return {"type": messages.pop(0)}

    with DisconnectWatcher(receive) as departure:
        while messages:
            await checkpoint()
        await checkpoint()
        with Tail().watch([log], departure) as watch:
            await asyncio.wait_for(watch.wait(), 30)


async def test_the_watch_ends_with_its_reader() -> None:
    """After its response a reader leaves no task that watches its client."""
    before = len(asyncio.all_tasks())
    with DisconnectWatcher(silence):
        await checkpoint()
        assert len(asyncio.all_tasks()) == before + 1
    await checkpoint()
    await checkpoint()
    assert len(asyncio.all_tasks()) == before


async def test_the_first_reader_that_waits_is_announced(log: Log) -> None:
    """Once for any number of readers, and again when all had left; a parked one counts too."""

    class Parked:
        """A reader without a task."""

        def wake(self) -> None:
            tail.leave(log, self)

    tail, begun = Tail(), list[object]()
    tail.on_waiting = begun.append
    assert not tail.has_readers(log)
    with watching(tail, log) as one, watching(tail, log) as two:
        readers = [await waits(tail, watch) for watch in (one, two)]
        tail.park(log, Parked())
        assert (begun, tail.has_readers(log)) == ([log], True)
        tail.wake(log)
        await asyncio.gather(*readers)
        assert not tail.has_readers(log)
        again = await waits(tail, one)
        assert begun == [log, log]
        tail.wake(log)
        await again
