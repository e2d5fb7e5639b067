"""A round of cleaning interrupted at every step: the old segments are found, or the new one."""

from functools import cache
from random import Random

import pytest

from tests.support.builders import World
from tests.support.compaction import Compacted, newest
from tests.support.filesystem import PowerCut
from tests.support.kafka import kafka

STEPS = 140
"""More steps than a round has; `test_the_steps_cover_the_whole_round` checks it."""


def dirty() -> Compacted:
    """Four sealed segments that become two, with an aborted transaction and a tombstone."""
    compacted = Compacted(World(), {"segment.bytes": 420})
    for number in range(4):
        compacted.put(("key", str(number)), (f"k{number}", "x" * 60))
        compacted.put((f"k{number}", None) if number == 2 else ("other", str(number)))
        compacted.seal()
    compacted.log.durability.flush()
    compacted.manager.checkpoint()
    compacted.world.disk.sync_everything()
    return compacted


def clean_and_remove(compacted: Compacted) -> None:
    """Everything that a round does to the disk, the delayed removals included."""
    assert compacted.cleaner.run_pass() is not None
    compacted.world.scheduler.advance(60_000)


@cache
def changes_of_a_round() -> int:
    compacted = dirty()
    before = len(compacted.world.disk.changes)
    clean_and_remove(compacted)
    return len(compacted.world.disk.changes) - before


def ensure_all_there(compacted: Compacted, expected: dict[str, str | None]) -> None:
    assert newest(compacted.pairs()) == expected
    compacted.log.maintenance.check_invariants()
    directory = compacted.files()
    assert not [name for name in directory if name.endswith((".cleaned", ".swap", ".deleted"))]
    compacted.put(("key", "after"))
    compacted.clean()
    assert newest(compacted.pairs()) == expected | {"key": "after"}
    compacted.log.maintenance.check_invariants()


def test_the_steps_cover_the_whole_round() -> None:
    """No step of the round is left out below."""
    assert 100 < changes_of_a_round() < STEPS


@kafka("LogCleanerTest.testRecoveryAfterCrash")
@pytest.mark.parametrize("power_cut", [True, False], ids=["power cut", "crash"])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_round_survives_an_interruption(step: int, *, power_cut: bool) -> None:
    """Whichever change of the disk comes last, every key has its value."""
    compacted = dirty()
    expected = newest(compacted.pairs())
    cut = False
    try:
        with compacted.world.disk.power_cut_before(step, torn=step % 2 == 0):
            clean_and_remove(compacted)
    except PowerCut:
        cut = True
    assert cut == (step <= changes_of_a_round())
    compacted.crash(power_cut=power_cut)
    ensure_all_there(compacted, expected)


@pytest.mark.parametrize("seed", range(40))
def test_a_round_survives_a_power_cut_that_keeps_some_of_what_was_not_synced(seed: int) -> None:
    """In whatever order the machine wrote, every key has its value."""
    random = Random(seed)
    compacted = dirty()
    expected = newest(compacted.pairs())
    try:
        with compacted.world.disk.power_cut_before(random.randrange(1, STEPS)):
            clean_and_remove(compacted)
    except PowerCut:
        pass
    compacted.world.disk.restart(random=random)
    compacted.crash(power_cut=False)
    ensure_all_there(compacted, expected)
