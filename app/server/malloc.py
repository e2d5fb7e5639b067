"""The C library's allocator: two heaps for all threads, and free memory returned to the system.

Only the GNU C library supports this; with another one these functions do nothing.
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
"""At most this many requests in `CALM_SECONDS`, such as those of probes, count as idle."""

LARGE_BYTES: Final = 16 << 20
"""Larger blocks are mapped, not taken from a heap: freeing them returns them to the system, and the
next one faults in each of its pages again. A read of 4 MiB as JSON takes blocks of 4 and 8 MiB."""

WORTH_BYTES: Final = 16 << 20
"""Trimming is not worth its milliseconds if memory has grown by less since the last time."""

_LIBRARY: Final = ctypes.CDLL(None)
_MOST_HEAPS: Final = -8  # M_ARENA_MAX
_MAPPED_FROM: Final = -3  # M_MMAP_THRESHOLD
_KEPT_ON_TOP: Final = -1  # M_TRIM_THRESHOLD
_SIZES: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

CAN_GIVE_BACK: Final = hasattr(_LIBRARY, "malloc_trim") and _SIZES.exists()
_set_allocator: Callable[[int, int], int] = getattr(_LIBRARY, "mallopt", lambda *_: 0)


def share_heaps() -> None:
    """Make all threads share two heaps; by default the library has one for each thread.

    A heap keeps memory that one of its threads used, such as a body of a megabyte, for its own
    threads. Large blocks are therefore mapped, which the library would stop doing after it freed
    the first.
    """
    _set_allocator(_MOST_HEAPS, 2)
    _set_allocator(_MAPPED_FROM, LARGE_BYTES)
    # Otherwise it is 128 KiB from now on: large bodies and answers are faulted in again and again.
    _set_allocator(_KEPT_ON_TOP, 2 * LARGE_BYTES)


def own_bytes() -> int:
    """Return the process's memory without mapped files, from Linux's /proc."""
    _, resident, shared, *_ = map(int, _SIZES.read_text().split())
    return (resident - shared) * _PAGE_BYTES


def give_back(floor_bytes: int) -> int:
    """Return free heap memory to the system, if that may be worth it; return what remains.

    `floor_bytes` is what remained the last time. Meanwhile other allocations wait: some
    milliseconds, or some tens of them for a large heap.
    """
    if own_bytes() < floor_bytes + WORTH_BYTES:
        return floor_bytes
    _LIBRARY.malloc_trim(0)
    return own_bytes()


async def give_back_when_calm(requests: Callable[[], int]) -> None:
    """After a busy period, return its memory to the system; runs until cancelled.

    `requests` returns the number of requests so far. Without this, memory of large answers stays in
    the heap, because small blocks after it are still in use. Only if `CAN_GIVE_BACK`.
    """
    floor_bytes = await asyncio.to_thread(own_bytes)
    while True:
        before = requests()
        await asyncio.sleep(CALM_SECONDS)
        if requests() - before <= CALM_REQUESTS:
            floor_bytes = await asyncio.to_thread(give_back, floor_bytes)
