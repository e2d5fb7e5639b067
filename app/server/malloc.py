"""Memory as the C library hands it out: few heaps, and given back when nobody needs it.

GNU's library alone can be told so; with another one nothing here does anything.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

CALM_SECONDS: Final = 2.0
CALM_REQUESTS: Final = 10
"""No more requests than these in so many seconds, those of a probe or two, are calm."""

LARGE_BYTES: Final = 4 << 20
"""Larger pieces are not taken from a heap: the system has them back as soon as they are freed."""

WORTH_BYTES: Final = 16 << 20
"""Less than this more than after the last time is not worth the milliseconds."""

_LIBRARY: Final = ctypes.CDLL(None)
_MOST_HEAPS: Final = -8  # M_ARENA_MAX
_MAPPED_FROM: Final = -3  # M_MMAP_THRESHOLD
_SIZES: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

CAN_GIVE_BACK: Final = hasattr(_LIBRARY, "malloc_trim") and _SIZES.exists()
_set_allocator: Callable[[int, int], int] = getattr(_LIBRARY, "mallopt", lambda *_: 0)


def share_heaps() -> None:
    """Have all threads take their memory from two heaps, where the library has one for each.

    A heap keeps what its thread once held, a body of a megabyte for one, for the same thread. So
    what is large gets no place in one, which the library would give it after the first was freed.
    """
    _set_allocator(_MOST_HEAPS, 2)
    _set_allocator(_MAPPED_FROM, LARGE_BYTES)


def own_bytes() -> int:
    """Return how much memory the process has to itself, but for that of files. Linux tells."""
    _, resident, shared, *_ = map(int, _SIZES.read_text().split())
    return (resident - shared) * _PAGE_BYTES


def give_back(floor_bytes: int) -> int:
    """Return to the system what the heaps keep free, if that may be worth it; return what is left.

    `floor_bytes` is what was left the last time. Whoever wants memory meanwhile waits: some
    milliseconds, some tens of them where there is much of it.
    """
    if own_bytes() < floor_bytes + WORTH_BYTES:
        return floor_bytes
    _LIBRARY.malloc_trim(0)
    return own_bytes()


async def give_back_when_calm(requests: Callable[[], int]) -> None:
    """After a busy time, once it is over, give back what it took; until cancelled.

    `requests` tells how many there have been. What large answers leave in a heap is else kept for
    good, since something small lies behind it. Only for where it can be done: `CAN_GIVE_BACK`.
    """
    floor_bytes = await asyncio.to_thread(own_bytes)
    while True:
        before = requests()
        await asyncio.sleep(CALM_SECONDS)
        if requests() - before <= CALM_REQUESTS:
            floor_bytes = await asyncio.to_thread(give_back, floor_bytes)
