"""One thread that runs named work at its time, and continues after any error of the work."""

import logging
import threading
from collections.abc import Iterator

import pytest

from engine.clock import SystemClock
from engine.scheduler import ThreadScheduler

PATIENCE_S = 60.0


def wait_for(event: threading.Event) -> None:
    assert event.wait(PATIENCE_S)


@pytest.fixture
def scheduler() -> Iterator[ThreadScheduler]:
    running = ThreadScheduler(SystemClock())
    running.start()
    yield running
    running.stop()


def test_work_runs_on_another_thread(scheduler: ThreadScheduler) -> None:
    """Work that is due at once runs soon, on the scheduler's own thread."""
    ran = threading.Event()
    threads: list[str] = []

    def work() -> None:
        threads.append(threading.current_thread().name)
        ran.set()

    scheduler.once("note the thread", 0, work)
    assert ran.wait(PATIENCE_S)
    assert threads == ["tidelog-background"]


def test_work_runs_in_the_order_of_its_time(scheduler: ThreadScheduler) -> None:
    """Of two delays the shorter is first, of equal ones the one that was scheduled first."""
    order: list[str] = []
    done = threading.Event()
    held = threading.Event()

    def last() -> None:
        order.append("last")
        done.set()

    scheduler.once("hold the thread", 0, lambda: wait_for(held))
    scheduler.once("last", 30, last)
    scheduler.once("first", 1, lambda: order.append("first"))
    scheduler.once("second", 1, lambda: order.append("second"))
    held.set()
    assert done.wait(PATIENCE_S)
    assert order == ["first", "second", "last"]


def test_periodic_work_runs_again_even_if_it_fails(
    scheduler: ThreadScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """An error is logged with the task's name, and the next run comes all the same."""
    runs = 0
    enough = threading.Event()

    def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            enough.set()
        raise ValueError("this run failed")

    with caplog.at_level(logging.ERROR):
        task = scheduler.every("fail", 1, work, delay_ms=0)
        assert enough.wait(PATIENCE_S)
        task.cancel()
    assert "fail failed" in caplog.text


def test_cancelled_work_does_not_start(scheduler: ThreadScheduler) -> None:
    """Work that was cancelled before its time is skipped; later work runs."""
    ran: list[str] = []
    done = threading.Event()
    held = threading.Event()
    scheduler.once("hold the thread", 0, lambda: wait_for(held))
    task = scheduler.once("cancelled", 0, lambda: ran.append("cancelled"))
    scheduler.every("later", 1, done.set)
    task.cancel()
    held.set()
    assert done.wait(PATIENCE_S)
    assert ran == []


def test_stopping_waits_and_starts_nothing_more() -> None:
    """The running task may end; later ones never start; a stop may be repeated."""
    scheduler = ThreadScheduler(SystemClock())
    scheduler.stop()  # never started: nothing to wait for
    scheduler = ThreadScheduler(SystemClock())
    started, ended, late = threading.Event(), threading.Event(), threading.Event()
    stopping = threading.Event()

    def work() -> None:
        started.set()
        stopping.wait(PATIENCE_S)
        ended.set()

    scheduler.once("work", 0, work)
    scheduler.once("late", 60_000, late.set)
    scheduler.start()
    assert started.wait(PATIENCE_S)
    stopping.set()
    scheduler.stop()
    assert ended.is_set()
    assert not late.is_set()
    scheduler.stop()
