"""A bound on the time that something may take, for what runs in the main thread."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

BUSY_MACHINE = 20
"""A thread that waits for a lock for ever uses no processor time, so the bound is longer."""


class TakesTooLong(Exception):
    """It has not ended in time; no `TimeoutError`, which would pass for one of the disk."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Let what takes more time of the processor fail where it stands, and what waits for ever."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TakesTooLong(f"it takes more than {seconds} s")

    before = [signal.signal(one, stop) for one in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(BUSY_MACHINE * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)
