"""Each procedure of the engine cut before each change it makes to the disk, in three ways.

The process dies; the power goes and takes all that was not synced; the power goes and leaves any of
it, in any order. Then the start that repairs it is cut as well. After each, everything is checked
that the simulator checks: see `tests.simulation`.
"""

from __future__ import annotations

import errno
import functools
import itertools
from collections.abc import Iterator
from random import Random

import pytest

from tests.simulation.determinism import deterministic
from tests.simulation.procedures import PROCEDURES, cut_starts, new_scene
from tests.simulation.simulation import Simulation
from tests.simulation.trouble import Ending, Kind, Trouble

CUTS_PER_PROCEDURE = 5
"""How many of its steps `make test` cuts; `make test-long` cuts them all, in every way."""


def cut(step: int, ending: Ending) -> Trouble:
    return Trouble(Kind.CUT, step, errno.EIO, ending)


def carried_out(name: str, trouble: Trouble, *at_the_start: Trouble) -> Simulation:
    """Carry out a procedure, and the start after it, with these troubles; everything is checked."""
    with deterministic(name):
        scene = new_scene()
        cut_starts(scene, *at_the_start)
        scene.do(PROCEDURES[name], Random(f"{name} {trouble}"), trouble)
        return scene


def failed_starts(scene: Simulation) -> int:
    """Return the number of starts that failed."""
    return sum("the start failed" in line for line in scene.told)


@functools.cache
def changes_of(name: str) -> int:
    """How many changes the procedure makes if nothing goes wrong."""
    with deterministic(name):
        before = len(new_scene().disk.changes)
    return len(carried_out(name, Trouble.none()).disk.changes) - before


def some_steps(name: str) -> Iterator[tuple[int, Ending]]:
    """Yield steps spread over the whole of a procedure, each with another way to end it."""
    count = changes_of(name)
    endings = [Ending.UNLUCKY_POWER_CUT, Ending.POWER_CUT, Ending.KILL]
    for number in range(min(count, CUTS_PER_PROCEDURE)):
        yield 1 + number * count // CUTS_PER_PROCEDURE, endings[number % len(endings)]


@pytest.mark.parametrize("name", PROCEDURES)
def test_a_procedure_may_end_at_any_step(name: str) -> None:
    """Whichever step is the last one, the next start finds everything acknowledged, and no more."""
    for step, ending in some_steps(name):
        carried_out(name, cut(step, ending))


@pytest.mark.long
@pytest.mark.parametrize("ending", Ending)
@pytest.mark.parametrize("name", PROCEDURES)
def test_a_procedure_may_end_at_every_step(name: str, ending: Ending) -> None:
    """The same for each step without exception."""
    for step in range(1, changes_of(name) + 2):
        carried_out(name, cut(step, ending))


@pytest.mark.long
@pytest.mark.parametrize("ending", Ending)
@pytest.mark.parametrize("name", PROCEDURES)
def test_the_start_after_it_may_end_at_every_step_too(name: str, ending: Ending) -> None:
    """An interrupted recovery is recovered: every other step of a start after every third cut.

    Each ending has its own cuts.
    """
    endings = list(Ending)
    first = 1 + 3 * endings.index(ending)
    for step in range(first, changes_of(name) + 1, 3 * len(endings)):
        uncut = failed_starts(carried_out(name, cut(step, ending)))
        for second in itertools.count(1 + step % 2, 2):
            again = cut(second, endings[second % len(endings)])
            if failed_starts(carried_out(name, cut(step, ending), again)) == uncut:
                break  # it has no such step


@pytest.mark.long
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("name", PROCEDURES)
def test_any_call_of_a_procedure_may_fail(name: str, error: int) -> None:
    """Whichever call fails, reads included, it is reported, and nothing is lost, then or later."""
    endings = list(Ending)
    with deterministic(name):
        before = new_scene().disk.calls
    calls = carried_out(name, Trouble.none()).disk.calls - before
    for call in range(1, calls + 1):
        trouble = Trouble(Kind.FAILURE, call, error, endings[call % len(endings)])
        carried_out(name, trouble)
