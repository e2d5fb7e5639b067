"""When a running thread is interrupted, and which thread continues; all of it follows from a seed.

Most races need one thread to run far while another stands still at one particular line. A schedule
with few interruptions, at lines drawn from the whole run, therefore finds them sooner than one that
may switch at every line (Musuvathi and Qadeer, PLDI 2007; Burckhardt et al., ASPLOS 2010, for the
priorities). A quarter of the schedules interrupts often all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Protocol

HORIZONS: Final = (60, 250, 800, 3_000)
"""The interruptions of a schedule are within this many lines; short works end earlier."""

MOST_INTERRUPTIONS: Final = 4
NEVER: Final = 1 << 60


class Policy(Protocol):
    """Decides for one schedule."""

    def next_change(self, step: int) -> int:
        """Return the step, above `step`, at which the running thread is interrupted next."""

    def choose(self, candidates: Sequence[int]) -> int:
        """Return the thread to continue, of those that can run."""

    def interrupted(self, thread: int) -> None:
        """Note that `thread` is interrupted now."""


class FewInterruptions:
    """Interrupts a few times; any other thread continues."""

    def __init__(self, random: Random, per_line: float) -> None:
        self._random = random
        self._changes = _drawn_changes(random, per_line)

    def next_change(self, step: int) -> int:
        return next((change for change in self._changes if change > step), NEVER)

    def choose(self, candidates: Sequence[int]) -> int:
        return self._random.choice(candidates)

    def interrupted(self, thread: int) -> None:
        pass


class Priorities:
    """The thread of the highest priority runs; an interruption lowers its thread's priority."""

    def __init__(self, random: Random, per_line: float, threads: int) -> None:
        self._changes = _drawn_changes(random, per_line)
        self._ascending = random.sample(range(threads), threads)

    def next_change(self, step: int) -> int:
        return next((change for change in self._changes if change > step), NEVER)

    def choose(self, candidates: Sequence[int]) -> int:
        return max(candidates, key=self._ascending.index)

    def interrupted(self, thread: int) -> None:
        self._ascending.remove(thread)
        self._ascending.insert(0, thread)


class Often:
    """Interrupts each few steps, for as long as the schedule lasts."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._mean = random.choice((2, 10, 60))

    def next_change(self, step: int) -> int:
        return step + self._random.randint(1, 2 * self._mean)

    def choose(self, candidates: Sequence[int]) -> int:
        return self._random.choice(candidates)

    def interrupted(self, thread: int) -> None:
        pass


def drawn_policy(random: Random, *, per_line: float, threads: int) -> Policy:
    """Return the policy of a schedule, for the number of steps per line."""
    chance = random.random()
    if chance < 0.5:
        return FewInterruptions(random, per_line)
    return Priorities(random, per_line, threads) if chance < 0.75 else Often(random)


def _drawn_changes(random: Random, per_line: float) -> list[int]:
    horizon = max(2, int(random.choice(HORIZONS) * per_line))
    return sorted(random.randint(1, horizon) for _ in range(random.randint(1, MOST_INTERRUPTIONS)))
