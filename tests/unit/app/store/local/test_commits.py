"""Waiting for commits, on a loop of the test's own."""

import asyncio
import threading
from collections.abc import Callable
from operator import itemgetter
from typing import cast

import pytest

from app.errors import CommitTimedOut
from app.store.local.commits import Commits
from engine.errors import Overloaded, StorageOffline
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
    made.is_due = True
    return made, moved, asked


async def test_a_waiter_is_settled_by_the_round_that_reaches_it(log: Log) -> None:
    """One round settles whom it reaches and leaves the others waiting."""
    made, moved, asked = attached()
    first, second = made.wait(log, 1), made.wait(log, 2)
    assert first is not None
    assert second is not None
    await asyncio.to_thread(made.committed, [(log, 1)])
    await first
    assert (second.done(), made.waiting, moved, asked) == (False, 1, [log], ["flush"])
    await asyncio.to_thread(made.committed, [(log, 2)])
    await second
    assert made.waiting == 0


async def test_a_round_on_the_loops_own_thread_settles_its_waiters_at_once(log: Log) -> None:
    """They do not wait for another turn of the loop; a failure is reported the same way."""
    made, moved, _ = attached()
    settled: list[Exception | None] = []
    assert made.when(log, 1, settled.append)
    assert made.when(log, 2, settled.append)
    made.committed([(log, 1)])
    assert (settled, moved) == ([None], [log])
    error = StorageOffline("the disk failed")
    made.failed([log], error)
    assert (settled, moved) == ([None, error], [log, log])


async def test_a_round_is_requested_once_for_the_appends_that_were_noted(log: Log) -> None:
    """The end of a batch requests it before anyone waits; the waiters then request none."""
    made, _, asked = attached()
    made.ask()
    made.ask()
    assert made.when(log, 1, lambda _: None)
    await settled()
    assert asked == ["flush"]
    made.is_due = True
    for _ in range(2):
        assert made.when(log, 1, lambda _: None)
    await settled()
    assert asked == ["flush", "flush"]


async def test_what_is_on_disk_needs_no_wait(log: Log) -> None:
    """An offset below the high watermark is not waited for."""
    made, _, _ = attached()
    log.durability.commit()
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


async def test_a_flush_that_was_refused_fails_its_waiters_with_that(log: Log) -> None:
    """Only an offline directory leaves it open whether the records are on disk."""
    made, moved, _ = attached()
    waiting = made.wait(log, 1)
    assert waiting is not None
    made.failed([log], Overloaded("too many files are open", limit="open_files"))
    with pytest.raises(Overloaded, match="too many files"):
        await waiting
    assert moved == [log]


async def test_who_waits_after_the_flush_failed_is_told_at_once(log: Log) -> None:
    """An append on a worker starts to wait after the failed round has notified the others."""
    made, _, asked = attached()
    log.durability.health.fail(OSError(5, "Input/output error"))
    waiting = made.wait(log, 1)
    assert waiting is not None
    with pytest.raises(StorageOffline, match="Input/output error"):
        await waiting
    assert (made.waiting, asked) == (0, [])


async def test_a_flush_that_never_comes_is_an_unknown_outcome(log: Log) -> None:
    """After the timeout the waiter gets an error; one that gave up is skipped."""
    made, _, _ = attached(timeout_ms=1)
    given_up, waiting = made.wait(log, 1), made.wait(log, 1)
    assert waiting is not None
    assert given_up is not None
    given_up.cancel()
    with pytest.raises(CommitTimedOut):
        await waiting
    assert made.waiting == 0


class TimedLoop:
    """What waiting needs of an event loop, at times that the test chooses."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[[], None]) -> None:
        call()

    def call_at(self, when: float, call: Callable[[], None]) -> object:
        self._timers.append((when, call))
        return call

    def run_timers(self) -> None:
        """Let time pass from timer to timer until none is set."""
        while self._timers:
            self._timers.sort(key=itemgetter(0))
            self.now, call = self._timers.pop(0)
            call()


def test_a_waiter_is_given_up_at_its_deadline_and_those_after_it_at_theirs() -> None:
    """Not up to a second later, whatever other waiters there are and were.

    The timer is set for the earliest deadline of all logs, and set again after each sweep.
    """
    first, second = World().open_log(), World().open_log()
    for log in (first, second):
        log.append(new_batch())
    loop = TimedLoop()
    made = Commits(timeout_ms=500, on_moved=lambda _: None)
    made.attach(cast("asyncio.AbstractEventLoop", loop), lambda: None)
    ended: list[tuple[str, float]] = []

    def wait(log: Log, end_offset: int, name: str) -> None:
        assert made.when(log, end_offset, lambda error: ended.append((name, loop.time())))

    wait(first, 1, "settled")
    loop.now = 0.2
    wait(second, 1, "a")
    wait(first, 2, "b")
    made.committed([(first, 1)])
    loop.now = 0.3
    wait(first, 3, "c")
    loop.run_timers()
    assert ended == [("settled", 0.2), ("a", 0.7), ("b", 0.7), ("c", 0.8)]
    assert made.waiting == 0


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
    """A commit without a loop, or with a closed one, notifies no waiter and does not fail."""
    moved: list[Log] = []
    made = Commits(timeout_ms=1, on_moved=moved.append)
    made.committed([(log, 1)])
    loop = asyncio.new_event_loop()
    made.attach(loop, lambda: None)
    loop.close()
    flusher = threading.Thread(target=made.committed, args=([(log, 1)],))
    flusher.start()
    flusher.join()
    assert moved == []
