"""Interrupts the service at chosen lines of `app`, on whichever of its threads they run.

At each of them another thread does something to the log, as an operator's request would, while the
interrupted thread waits. If it holds a lock that the other one needs, it goes on at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

import app

Due: TypeAlias = "tuple[int, Callable[[], None]]"
"""After how many lines a part of a change happens."""

IN_SERVICE: Final = f"{Path(app.__file__).parent}/"
MOST_SECONDS: Final = 0.3
"""How long an interrupted thread waits for what is done meanwhile."""


class Interruption:
    """Counts the lines of `app` that run, and does each part of a change at its line."""

    def __init__(self) -> None:
        self.where: list[str] = []
        """The lines at which something happened."""
        self._lines = 0
        self._parts: list[Due] = []
        self._other = ThreadPoolExecutor(1, initializer=self._leave_alone)
        self._running: list[Future[None]] = []
        self._is_armed = False
        self._lock = threading.Lock()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch this thread, and those that begin inside the block."""
        before = sys.gettrace()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before)
            self._other.shutdown()

    def arm(self, parts: Sequence[Due]) -> None:
        """Begin to count; do these parts, ordered by their lines."""
        self._lines, self.where = 0, []
        self._parts, self._running = list(parts), []
        self._is_armed = True

    def do_next(self) -> bool:
        """Do the next part now, because nothing else happens; False if there is none."""
        with self._lock:
            part = self._parts.pop(0)[1] if self._parts else None
        if part is None:
            return False
        self._do(part, "while it waits")
        return True

    def disarm(self) -> None:
        """Do what is left, and wait for all of it; raises what a part raised."""
        self._is_armed = False
        while self.do_next():
            self.where[-1] = "after it"
        for running in self._running:
            running.result()

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        """Trace the functions of `app` alone."""
        if self._is_armed and frame.f_code.co_filename.startswith(IN_SERVICE):
            return self._line
        return None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and self._is_armed:
            with self._lock:
                self._lines += 1
                is_due = bool(self._parts) and self._lines >= self._parts[0][0]
                part = self._parts.pop(0)[1] if is_due else None
            if part is not None:
                code = frame.f_code
                path = code.co_filename.removeprefix(IN_SERVICE)
                self._do(part, f"{path}:{frame.f_lineno} ({code.co_name})")
        return self._line

    def _do(self, part: Callable[[], None], where: str) -> None:
        self.where.append(where)
        running = self._other.submit(part)
        self._running.append(running)
        try:
            running.exception(MOST_SECONDS)
        except TimeoutError:
            self.where[-1] += ", which held its lock"

    @staticmethod
    def _leave_alone() -> None:
        sys.settrace(None)
