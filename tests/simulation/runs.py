"""Runs from seeds, and the report of a failing one."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import pytest

from tests.simulation.determinism import deterministic
from tests.simulation.history import Step, history_of, shortened
from tests.simulation.more_steps import ALL_WEIGHTS, ALL_WORKS
from tests.simulation.simulation import WIDE_FROM, Simulation
from tests.simulation.steps import WEIGHTS
from tests.simulation.trouble import Trouble
from tests.support.filesystem import ForgetfulDisk
from tests.support.patience import at_most

LONGEST_S = 30
"""A life takes a fraction of a second: a longer one is an endless loop."""


@dataclass(frozen=True)
class Failure:
    """A run that went wrong, with the fewest steps that still do."""

    seed: int
    what: str
    steps: int
    needed: Sequence[Step]
    told: Sequence[str]
    trace: str

    def __str__(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed} failed: {self.what}",
                self.trace,
                f"{len(self.needed)} of its {self.steps} steps suffice:",
                *self.told,
                f"again: make simulate SEED={self.seed} RUNS=1",
            ]
        )


def steps_of(seed: int) -> list[Step]:
    """Return the steps of a life."""
    return history_of(seed, WEIGHTS if seed < WIDE_FROM else ALL_WEIGHTS)


def run(seed: int, new_disk: Callable[[], ForgetfulDisk] = ForgetfulDisk) -> Failure | None:
    """Play the run of a seed; return what went wrong, if anything."""
    steps = steps_of(seed)
    failed = _attempt(seed, steps, new_disk)
    if failed is None:
        return None
    place = _place(failed.error)
    needed = shortened(steps, lambda fewer: _fails_there(seed, fewer, new_disk, place))
    shortest = _attempt(seed, needed, new_disk)
    assert shortest is not None, "what failed once fails again"
    error = shortest.error
    trace = "".join(traceback.format_exception(error)[-8:])
    return Failure(seed, repr(error), len(steps), needed, shortest.told, trace)


def failure_of(seed: int) -> BaseException | None:
    """Return the error of a seed's run, without further analysis."""
    failed = _attempt(seed, history_of(seed, WEIGHTS))
    return None if failed is None else failed.error


def changes_of(seed: int) -> Sequence[object]:
    """Return every change that a run makes to the disk, to compare it with a repetition."""
    with deterministic(seed):
        simulation = Simulation(seed)
        _play(simulation, seed, steps_of(seed))
    return simulation.disk.changes


@dataclass(frozen=True)
class _Attempt:
    error: BaseException
    told: Sequence[str]


def _attempt(
    seed: int, steps: Sequence[Step], new_disk: Callable[[], ForgetfulDisk] = ForgetfulDisk
) -> _Attempt | None:
    with deterministic(seed):
        simulation = Simulation(seed, new_disk())
        try:
            with at_most(LONGEST_S):
                _play(simulation, seed, steps)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - the failure to look for
            return _Attempt(error, simulation.told)
    return None


def _play(simulation: Simulation, seed: int, steps: Sequence[Step]) -> None:
    for step in steps:
        simulation.play(step, ALL_WORKS[step.name])
    simulation.trouble = Trouble.none()
    simulation.stop_and_start(Random(f"end {seed}"))
    simulation.check()


def _fails_there(
    seed: int, steps: Sequence[Step], new_disk: Callable[[], ForgetfulDisk], place: object
) -> bool:
    failed = _attempt(seed, steps, new_disk)
    return failed is not None and _place(failed.error) == place


def _place(error: BaseException) -> object:
    """The kind of an error and where it was raised: what makes two failures one."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return type(error), last.filename, last.lineno
