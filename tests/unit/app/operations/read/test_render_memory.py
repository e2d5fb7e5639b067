"""The memory of reads: who waits for it, and in which order."""

import asyncio
import threading
from functools import partial
from weakref import ref

import pytest

from app.limits.executors import FairThreads
from app.operations.read.render_memory import SMALL_BYTES, RenderMemory
from app.settings import Settings
from engine.records.header import Codec
from engine.types import Buffer
from tests.support.builders import values_of
from tests.support.raw import until

pytestmark = pytest.mark.anyio

PLAIN = bytes(values_of([bytes(SMALL_BYTES)]))
"""Takes some 35 MiB: an answer may be 32 MiB, and no record is larger than a megabyte."""

BOMB = bytes(values_of([bytes(40 * SMALL_BYTES)], codec=Codec.ZSTD))
"""Takes more than all there is."""

SMALL = bytes(values_of([b"x"]))


async def test_memory_that_is_not_free_is_waited_for_in_the_order_of_asking() -> None:
    """One that needs more than there is runs alone; what needs little never waits."""
    memory = RenderMemory(Settings(max_in_flight_render_bytes=50 * SMALL_BYTES))
    threads = FairThreads(4, "rendering")
    order: list[str] = []
    gates = {name: threading.Event() for name in ("first", "alone", "last")}
    begun = {name: threading.Event() for name in gates}

    def render(name: str, read: Buffer) -> None:
        with memory.hold([read]):
            order.append(name)
            begun[name].set()
            assert gates[name].wait(20)

    first = threads.run(partial(render, "first", PLAIN), "a")
    await asyncio.to_thread(begun["first"].wait)
    alone = threads.run(partial(render, "alone", BOMB), "b")
    await asyncio.to_thread(until, lambda: len(memory._waiting) == 1)  # noqa: SLF001 - there is no public way to see it
    last = threads.run(partial(render, "last", PLAIN), "c")
    await asyncio.to_thread(until, lambda: len(memory._waiting) == 2)  # noqa: SLF001 - there is no public way to see it
    with memory.hold([SMALL]):
        assert order == ["first"]
    gates["first"].set()
    await asyncio.to_thread(begun["alone"].wait)
    assert order == ["first", "alone"]
    gates["alone"].set()
    await asyncio.to_thread(begun["last"].wait)
    gates["last"].set()
    await asyncio.gather(first, alone, last)
    threads.close()
    assert order == ["first", "alone", "last"]


def test_a_read_that_fails_keeps_no_memory() -> None:
    """What it decoded is gone before the next one may begin, though its error is still kept."""

    class Decoded:
        """What a frame of the failed read holds."""

    decoded: list[ref[Decoded]] = []

    def decode() -> None:
        found = Decoded()
        decoded.append(ref(found))
        raise OverflowError("it does not fit")

    def render() -> None:
        found = Decoded()
        decoded.append(ref(found))
        try:
            decode()
        except OverflowError as error:
            raise ValueError("it cannot be shown") from error

    memory = RenderMemory(Settings())
    with pytest.raises(ValueError, match="shown") as caught, memory.hold_bytes(2 * SMALL_BYTES):
        render()
    assert caught.value.__traceback__ is not None
    assert [one() for one in decoded] == [None, None]
