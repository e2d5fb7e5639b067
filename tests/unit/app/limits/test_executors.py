"""Threads that serve holders in turn."""

import asyncio
import gc
import threading
import weakref
from contextlib import suppress
from functools import partial

import pytest
from anyio.lowlevel import checkpoint

from app.limits.executors import FairThreads

pytestmark = pytest.mark.anyio


async def test_much_work_of_one_holder_delays_others_by_one_piece() -> None:
    """What came later from another is done before the rest of it."""
    threads = FairThreads(1, "fair")
    begun, is_open = threading.Event(), threading.Event()
    done: list[str] = []

    def hold() -> None:
        begun.set()
        assert is_open.wait(20)

    handed_in = [threads.run(hold, "greedy")]
    await asyncio.to_thread(begun.wait)
    for holder in ("greedy", "greedy", "greedy", "other", "third", "other"):
        work = partial(done.append, holder)
        handed_in.append(threads.run(work, holder))
    await checkpoint()
    is_open.set()
    await asyncio.gather(*handed_in)
    threads.close()
    assert done == ["greedy", "other", "third", "greedy", "other", "greedy"]


async def test_work_that_fails_or_is_given_up_leaves_the_threads_to_the_rest() -> None:
    """Its error is raised in the caller; work whose caller has gone is not started."""
    threads = FairThreads(1, "fair")
    begun, is_open = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert is_open.wait(20)
        raise ValueError("wrong")

    failing = threads.run(hold, "one")
    await asyncio.to_thread(begun.wait)
    done: list[str] = []
    given_up = threads.run(partial(done.append, "given up"), "two")
    wanted = threads.run(partial(done.append, "wanted"), "two")
    await checkpoint()
    given_up.cancel()
    await checkpoint()
    is_open.set()
    with pytest.raises(ValueError, match="wrong"):
        await failing
    await wanted
    threads.close()
    assert done == ["wanted"]


async def test_an_error_keeps_nothing() -> None:
    """What failed work held is free as soon as its error has been seen to, without a search."""
    threads = FairThreads(1, "fair")
    held: list[weakref.ref[bytearray]] = []

    class Buffer(bytearray):
        """One that can be watched."""

    def fail() -> None:
        buffer = Buffer(1)
        held.append(weakref.ref(buffer))
        raise ValueError("wrong")

    gc.disable()
    try:
        with suppress(ValueError):
            await threads.run(fail, "one")
        await asyncio.to_thread(threads.close)
        assert held[0]() is None
    finally:
        gc.enable()


async def test_work_that_has_not_begun_is_cancelled_at_the_end() -> None:
    """Callers do not wait for threads that have ended."""
    threads = FairThreads(1, "fair")
    begun, is_open = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert is_open.wait(20)

    running = threads.run(hold, "one")
    await asyncio.to_thread(begun.wait)
    waiting = threads.run(hold, "two")
    await checkpoint()
    # What has not begun is cancelled before what runs may end: close does both in this order.
    threads._executor.shutdown(wait=False, cancel_futures=True)  # noqa: SLF001 - its first half
    is_open.set()
    await asyncio.to_thread(threads.close)
    await running
    with pytest.raises(asyncio.CancelledError):
        await waiting
