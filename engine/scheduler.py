"""Background work as a port: named tasks, periodic or once, cancellable, errors reported.

The thread scheduler runs all tasks on one thread, in order of due time: the engine's background
tasks are short (a pass over the logs) and must not overlap. The committer's flusher has its own
thread.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from engine.clock import Clock

_LOG = logging.getLogger(__name__)


class Task(Protocol):
    """A scheduled piece of work."""

    def cancel(self) -> None:
        """Prevent further runs of the task; a run that has begun ends normally."""


class Scheduler(Protocol):
    """Runs callables later, on a thread of its own."""

    def every(
        self, name: str, period_ms: int, work: Callable[[], None], *, delay_ms: int | None = None
    ) -> Task:
        """Run `work` each `period_ms`, first after `delay_ms` (default: one period)."""

    def once(self, name: str, delay_ms: int, work: Callable[[], None]) -> Task:
        """Run `work` once after `delay_ms`."""


@dataclass(order=True)
class _Entry:
    due_ms: int
    number: int
    name: str = field(compare=False)
    work: Callable[[], None] = field(compare=False)
    period_ms: int | None = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class ThreadScheduler:
    """One thread and a heap of due times; an error in a task is logged, and it runs again."""

    def __init__(self, clock: Clock, *, name: str = "tidelog-background") -> None:
        self._clock = clock
        self._heap: list[_Entry] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait for the running task to end, and start no other."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def every(
        self, name: str, period_ms: int, work: Callable[[], None], *, delay_ms: int | None = None
    ) -> Task:
        return self._add(name, period_ms if delay_ms is None else delay_ms, work, period_ms)

    def once(self, name: str, delay_ms: int, work: Callable[[], None]) -> Task:
        return self._add(name, delay_ms, work, None)

    def _add(
        self, name: str, delay_ms: int, work: Callable[[], None], period_ms: int | None
    ) -> _Entry:
        with self._changed:
            due_ms = self._clock.monotonic_ms() + delay_ms
            entry = _Entry(due_ms, next(self._numbers), name, work, period_ms)
            heapq.heappush(self._heap, entry)
            self._changed.notify()
        return entry

    def _run(self) -> None:
        while (entry := self._next_due()) is not None:
            try:
                entry.work()
            except Exception:  # noqa: BLE001 - one task must not stop the others
                _LOG.exception("background task %s failed and will run again", entry.name)
            if entry.period_ms is not None and not entry.cancelled:
                self._again(entry, entry.period_ms)

    def _again(self, entry: _Entry, period_ms: int) -> None:
        with self._changed:
            entry.due_ms = self._clock.monotonic_ms() + period_ms
            heapq.heappush(self._heap, entry)

    def _next_due(self) -> _Entry | None:
        """Wait for the next task and take it; None when stopping."""
        with self._changed:
            while not self._stopping:
                while self._heap and self._heap[0].cancelled:
                    heapq.heappop(self._heap)
                wait_ms = self._heap[0].due_ms - self._clock.monotonic_ms() if self._heap else None
                if wait_ms is not None and wait_ms <= 0:
                    return heapq.heappop(self._heap)
                self._changed.wait(None if wait_ms is None else wait_ms / 1000)
            return None
