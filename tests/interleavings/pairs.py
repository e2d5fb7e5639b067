"""Two works on two threads, the first interrupted once, at each of its steps in turn.

The second one runs until it ends, or waits for a lock of the first. Most races need no more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.interleavings.locks import engine_locks
from tests.interleavings.policies import NEVER
from tests.interleavings.steps import Steps
from tests.interleavings.turns import Turns


@dataclass(frozen=True)
class Once:
    """Interrupts at one step; the thread that was started first continues if it can."""

    step: int

    def next_change(self, step: int) -> int:
        return self.step if step < self.step else NEVER

    def choose(self, candidates: Sequence[int]) -> int:
        return candidates[0]

    def interrupted(self, thread: int) -> None:
        pass


def each_interruption(
    steps: Steps, make: Callable[[], tuple[Callable[[], object], Callable[[], object]]]
) -> Iterator[Sequence[BaseException | None]]:
    """Yield what the two works raised, for each step; `make` creates them for each."""
    for step in itertools.count(1):
        with engine_locks():
            turns = Turns(Once(step), steps)
            errors = turns.run(make())
        yield errors
        if not any(switch.why == "stops at" for switch in turns.switches):
            return
