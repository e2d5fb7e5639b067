"""A bound on the time that something may take, for what runs in the main thread."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TakesTooLong(Exception):
    """It has not ended in time; no `TimeoutError`, which would pass for one of the disk."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Let what takes longer fail where it stands."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TakesTooLong(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
