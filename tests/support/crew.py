"""Threads that work on one thing at once, and values that prove themselves."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from time import monotonic

LEAST_ROUNDS = 5
"""On a busy machine a thread may get no turn in the whole time."""


class Crew:
    """Threads that work until time is up, some rounds at least; the first error ends all."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = 0.0
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    @property
    def goes_on(self) -> bool:
        return not self.errors and monotonic() < self._end

    def add(self, work: Callable[[], object]) -> None:
        """Have a thread do it over and over."""

        def run() -> None:
            try:
                rounds = 0
                while self.goes_on or (rounds < LEAST_ROUNDS and not self.errors):
                    work()
                    rounds += 1
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test must see it
                self.errors.append(error)

        self._threads.append(threading.Thread(target=run))

    def run(self) -> None:
        """Return when all have ended; raise the first error."""
        self._end = monotonic() + self._seconds
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def sealed(content: bytes) -> bytes:
    """Return the content followed by its checksum."""
    return content + zlib.crc32(content).to_bytes(4, "big")


def unsealed(value: bytes | None) -> bytes:
    """Return the content; fail if a byte of it is not what it was."""
    assert value is not None
    assert zlib.crc32(value[:-4]) == int.from_bytes(value[-4:], "big"), "wrong bytes"
    return value[:-4]
