"""The bytes that reads wait for are bounded, for each broker alone."""

import asyncio
from contextlib import suppress

import pytest
from anyio.lowlevel import checkpoint

from app.store.kafka.read.reads import FetchMemory

pytestmark = pytest.mark.anyio


class Reader:
    """A read that holds bytes until its event is set."""

    def __init__(self, memory: FetchMemory, size_bytes: int, node: int = 1) -> None:
        self.has_begun = False
        self.end = asyncio.Event()
        self.task = asyncio.create_task(self._run(memory, node, size_bytes))

    async def _run(self, memory: FetchMemory, node: int, size_bytes: int) -> None:
        async with memory.hold(node, size_bytes):
            self.has_begun = True
            await self.end.wait()

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def settle() -> None:
    for _ in range(5):
        await checkpoint()


async def test_reads_wait_for_their_turn() -> None:
    """In the order of their arrival, even if a later one would fit."""
    memory = FetchMemory(100, lambda: 1)
    first, second, third = (Reader(memory, size) for size in (60, 60, 10))
    await settle()
    assert [one.has_begun for one in (first, second, third)] == [True, False, False]
    first.end.set()
    await settle()
    assert second.has_begun
    assert third.has_begun
    for one in (second, third):
        one.end.set()
        await one.task


async def test_a_slow_broker_uses_up_its_own_share() -> None:
    """The others go on; one read always may, however large."""
    memory = FetchMemory(100, lambda: 2)
    slow, waiting, other = Reader(memory, 500), Reader(memory, 1), Reader(memory, 50, node=2)
    await settle()
    assert [one.has_begun for one in (slow, waiting, other)] == [True, False, True]
    for one in (slow, waiting, other):
        one.end.set()
        await one.task


async def test_a_read_that_is_given_up_holds_nothing() -> None:
    """Neither while it waits, nor when its turn has just come."""
    memory = FetchMemory(100, lambda: 1)
    async with memory.hold(1, 100):
        gone, late, last = (Reader(memory, 100) for _ in range(3))
        await settle()
        await gone.stop()
    late.task.cancel()  # its turn has come, and it does not know yet
    await settle()
    assert not late.has_begun
    assert last.has_begun
    last.end.set()
    await last.task


async def test_a_turn_is_not_given_to_a_read_that_ends() -> None:
    """It is cancelled in the turn of the loop in which the bytes are released."""
    memory = FetchMemory(100, lambda: 1)
    first, gone, last = (Reader(memory, 100) for _ in range(3))
    await settle()
    gone.task.cancel()
    first.end.set()
    await settle()
    assert (gone.has_begun, last.has_begun) == (False, True)
    last.end.set()
    await last.task
