"""Schedules from seeds, and the report of a failing one."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import pytest

from tests.interleavings.policies import drawn_policy
from tests.interleavings.schedule import ALL_WORKS, Schedule
from tests.interleavings.steps import drawn_steps
from tests.interleavings.turns import Turns
from tests.simulation.determinism import deterministic

SHORTENINGS: Final = 25
"""How often a failure with a work less is looked for, each time with other interruptions."""


@dataclass(frozen=True)
class Variant:
    """The parameters of a schedule: its seed and, to narrow it down, a subset of the works."""

    seed: int
    names: Sequence[str] = ALL_WORKS
    leaves_out: frozenset[int] = frozenset()
    """The numbers of works that are not done."""
    attempt: int = 0
    """Each has other interruptions."""

    def __str__(self) -> str:
        """Return what `make interleavings` has to be given."""
        said = f"SEED={self.seed} RUNS=1"
        if self.names is not ALL_WORKS:
            said += f" WORKS='{','.join(self.names)}'"
        if self.leaves_out:
            said += f" WITHOUT={','.join(map(str, sorted(self.leaves_out)))}"
        if self.attempt:
            said += f" ATTEMPT={self.attempt}"
        return said


@dataclass(frozen=True)
class Played:
    """A schedule that was played, and what went wrong, if anything."""

    variant: Variant
    error: BaseException | None
    works: Sequence[str]
    """What each thread does."""
    numbers: Sequence[int]
    """Those of the works."""
    switches: Sequence[str]

    @property
    def place(self) -> object:
        """The kind of the error and where it was raised: what makes two failures one."""
        assert self.error is not None
        frames = traceback.extract_tb(self.error.__traceback__)
        return type(self.error), frames[-1].filename, frames[-1].lineno

    @property
    def size(self) -> tuple[int, int]:
        """How much there is to understand."""
        return sum(map(len, self.works)), len(self.switches)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"seed {self.variant.seed} failed: {self.error!r}",
                "".join(traceback.format_exception(self.error)[-7:]),
                *self.works,
                *(f"  {switch}" for switch in self.switches),
                f"again: make interleavings {self.variant}",
            ]
        )


def play(variant: Variant) -> Played:
    """Play a schedule, inside `engine_locks`."""
    random = Random(f"schedule {variant.seed}")
    interruptions = Random(f"interruptions {variant.seed} {variant.attempt}")
    with deterministic(variant.seed):
        schedule = Schedule.drawn(random, variant.names, variant.leaves_out)
        steps = drawn_steps(interruptions)
        policy = drawn_policy(interruptions, per_line=steps.per_line, threads=len(schedule.threads))
        turns = Turns(policy, steps, on_turn=schedule.went_on)
        error: BaseException | None = None
        try:
            schedule.play(turns)
            schedule.judge()
            schedule.history.end(interruptions)
        except (Exception, pytest.fail.Exception) as found:  # noqa: BLE001 - the failure to look for
            error = found
    switches = [switch.told(schedule.names) for switch in turns.switches]
    return Played(variant, error, schedule.told(), schedule.numbers, switches)


def shortened(failure: Played) -> Played:
    """Leave out works, and look for a schedule that fails in the same place without them."""
    best = failure
    for number in failure.numbers:
        fewer = best.variant.leaves_out | {number}
        for attempt in range(SHORTENINGS):
            found = play(replace(best.variant, leaves_out=fewer, attempt=attempt))
            if found.error is not None and found.place == failure.place and found.size < best.size:
                best = found
    return best
