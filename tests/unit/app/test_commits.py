"""Waiting for commits and at the tail, on a loop of the test's own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app import commits
from app.commits import Commits, CommitTimedOut
from app.tail import Departure, Tail
from engine.errors import StorageOffline
from engine.log.log import Log
from tests.support.builders import World, new_batch

pytestmark = pytest.mark.anyio


@pytest.fixture
def log() -> Log:
    """A log with one record that is not on disk yet."""
    log = World().open_log()
    log.append(new_batch())
    return log


def attached(timeout_ms: int = 1_000) -> tuple[Commits, list[Log], list[str]]:
    """Commits on the running loop, whom they moved, and how often they asked for a flush."""
    moved: list[Log] = []
    asked: list[str] = []
    made = Commits(timeout_ms=timeout_ms, on_moved=moved.append)
    made.attach(asyncio.get_running_loop(), lambda: asked.append("flush"))
    return made, moved, asked


async def test_a_waiter_is_settled_by_the_round_that_reaches_it(log: Log) -> None:
    """One round settles whom it reaches and leaves the others waiting."""
    made, moved, asked = attached()
    first, second = made.wait(log, 1), made.wait(log, 2)
    assert first is not None
    assert second is not None
    made.committed([(log, 1)])
    await first
    assert (second.done(), made.waiting, moved, asked) == (False, 1, [log], ["flush"])
    made.committed([(log, 2)])
    await second
    assert made.waiting == 0


async def test_what_is_on_disk_needs_no_wait(log: Log) -> None:
    """An offset below the high watermark is not waited for."""
    made, _, _ = attached()
    log.commit()
    assert made.wait(log, 1) is None


async def test_a_failed_flush_fails_its_waiters(log: Log) -> None:
    """Everyone who waits on the log gets the error, and its readers look again."""
    made, moved, _ = attached()
    waiting = made.wait(log, 1)
    given_up = made.wait(log, 1)
    assert waiting is not None
    assert given_up is not None
    given_up.cancel()
    made.failed([log], StorageOffline("the disk failed"))
    with pytest.raises(StorageOffline):
        await waiting
    assert moved == [log]


async def test_a_flush_that_never_comes_is_an_unknown_outcome(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time is over the waiter is told; one that gave up is passed over."""
    monkeypatch.setattr(commits, "SWEEP_SECONDS", 0.001)
    made, _, _ = attached(timeout_ms=1)
    given_up, waiting = made.wait(log, 1), made.wait(log, 1)
    assert waiting is not None
    assert given_up is not None
    given_up.cancel()
    with pytest.raises(CommitTimedOut):
        await waiting
    assert made.waiting == 0


async def test_the_sweep_leaves_those_who_have_time(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep before anybody's time is over settles nobody and comes again."""
    monkeypatch.setattr(commits, "SWEEP_SECONDS", 0.001)
    made, _, _ = attached(timeout_ms=60_000)
    waiting = made.wait(log, 1)
    assert waiting is not None
    swept = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.01, swept.set_result, None)
    await swept
    assert not waiting.done()
    made.committed([(log, 1)])
    await waiting


async def test_a_round_may_move_logs_nobody_waits_for(log: Log) -> None:
    """Readers are woken all the same, and a waiter who gave up is dropped."""
    made, moved, _ = attached()
    given_up = made.wait(log, 1)
    assert given_up is not None
    given_up.cancel()
    made.committed([(log, 1)])
    made.committed([(log, 1)])
    await settled()
    assert (moved, made.waiting) == ([log, log], 0)


async def settled() -> None:
    """Return when the loop has run what other threads asked of it."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon_threadsafe(done.set_result, None)
    await done


def test_before_and_after_the_loop_commits_wake_nobody(log: Log) -> None:
    """A commit while there is no loop, or a closed one, has nobody to tell and does not fail."""
    moved: list[Log] = []
    made = Commits(timeout_ms=1, on_moved=moved.append)
    made.committed([(log, 1)])
    loop = asyncio.new_event_loop()
    made.attach(loop, lambda: None)
    loop.close()
    made.committed([(log, 1)])
    assert moved == []


@asynccontextmanager
async def staying() -> AsyncIterator[asyncio.Future[None]]:
    """A client that does not hang up."""
    yield asyncio.get_running_loop().create_future()


async def test_readers_are_woken_together(log: Log) -> None:
    """Everyone who waits on a log is woken once, and nobody stays remembered."""
    tail = Tail()
    async with staying() as gone:
        waits = [asyncio.create_task(tail.wait(log, 60, gone)) for _ in range(3)]
        while tail.waiting < 3:
            await settled()
        tail.wake_all()
        await asyncio.gather(*waits)
    assert tail.waiting == 0


async def test_one_reader_gives_up_while_others_wait(log: Log) -> None:
    """A reader whose time is over leaves; the other is still woken."""
    tail = Tail()
    async with staying() as gone:
        other = asyncio.create_task(tail.wait(log, 60, gone))
        await tail.wait(log, 0.001, gone)
        assert tail.waiting == 1
        tail.wake(log)
        tail.wake(log)
        await other


async def test_a_cancelled_reader_is_not_woken(log: Log) -> None:
    """A wait that was called off leaves nothing behind that a wake-up could trip over."""
    tail = Tail()
    async with staying() as gone:
        waiting = asyncio.create_task(tail.wait(log, 60, gone))
        while not tail.waiting:
            await settled()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    tail.wake(log)
    assert tail.waiting == 0


async def test_a_departure_is_noticed(tmp_path: Path) -> None:
    """What comes before the disconnect is passed over; the end of the watch calls it off."""
    messages = ["http.request", "http.disconnect"]

    async def receive() -> dict[str, str]:
        return {"type": messages.pop(0)}

    async with Departure(receive) as gone:
        await gone
        assert messages == []

    async def silent() -> dict[str, str]:
        await asyncio.get_running_loop().create_future()
        return {}

    async with Departure(silent) as gone:
        assert not gone.done()
    assert gone.cancelled()
