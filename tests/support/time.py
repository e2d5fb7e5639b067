"""Time that moves only when a test says so: a hand-driven clock and scheduler."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

START_MS = 1_795_219_400_000
"""When the golden archives were written, give or take a minute."""

OF_ANY_YEAR: dict[str, Any] = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)}
"""Of a topic that gets records of then from a service whose clock is the machine's: from a week
after then on, retention would refuse them, and the next record would begin another segment."""


class ManualClock:
    """A clock that only moves when a test moves it."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, milliseconds: int) -> None:
        """Let time pass, on the wall and in here."""
        assert milliseconds >= 0
        self._now_ms += milliseconds
        self._monotonic_ms += milliseconds

    def set_wall(self, now_ms: int) -> None:
        """Set the host's clock, forwards or back; monotonic time does not change."""
        self._now_ms = now_ms


@dataclass(order=True)
class ScheduledTask:
    """One entry of the manual scheduler."""

    due_ms: int
    number: int
    name: str = field(compare=False)
    work: Callable[[], None] = field(compare=False)
    period_ms: int | None = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class ManualScheduler:
    """Runs what is due on the calling thread, when `advance` moves its clock past it.

    Unlike the real one it lets errors of tasks through, so that no test overlooks one.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._tasks: list[ScheduledTask] = []
        self._numbers = itertools.count()

    def every(
        self, name: str, period_ms: int, work: Callable[[], None], *, delay_ms: int | None = None
    ) -> ScheduledTask:
        return self._add(name, period_ms if delay_ms is None else delay_ms, work, period_ms)

    def once(self, name: str, delay_ms: int, work: Callable[[], None]) -> ScheduledTask:
        return self._add(name, delay_ms, work, None)

    @property
    def names(self) -> list[str]:
        """The tasks that will still run, the next one first."""
        return [task.name for task in sorted(self._tasks) if not task.cancelled]

    def advance(self, milliseconds: int) -> None:
        """Let time pass and run what falls due meanwhile, each task at its time."""
        end_ms = self._clock.monotonic_ms() + milliseconds
        while self._tasks and self._tasks[0].due_ms <= end_ms:
            task = heapq.heappop(self._tasks)
            if task.cancelled:
                continue
            self._clock.advance(max(0, task.due_ms - self._clock.monotonic_ms()))
            if task.period_ms is not None:
                task.due_ms += task.period_ms
                heapq.heappush(self._tasks, task)
            task.work()
        self._clock.advance(end_ms - self._clock.monotonic_ms())

    def run_due(self) -> None:
        """Run what is due now."""
        self.advance(0)

    def _add(
        self, name: str, delay_ms: int, work: Callable[[], None], period_ms: int | None
    ) -> ScheduledTask:
        due_ms = self._clock.monotonic_ms() + delay_ms
        task = ScheduledTask(due_ms, next(self._numbers), name, work, period_ms)
        heapq.heappush(self._tasks, task)
        return task
