"""The leftovers of an interrupted replacement: finished if complete, otherwise undone."""

import pytest

from engine.log.log import Log
from engine.segment.segment import Segment
from tests.support.builders import World
from tests.support.filesystem import PowerCut
from tests.support.kafka import kafka
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    fill_segments,
    log_path,
    read_values,
    segment_bases,
)
from tests.support.time import START_MS

SUFFIXES = (".log", ".index", ".timeindex")


def opened() -> tuple[World, Log, list[bytes]]:
    """A log of segments 0, 3, 6 and 9, flushed."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, 3, 3, 3, 3)
    log.durability.flush()
    return world, log, values


def copies(world: World, log: Log) -> tuple[list[Segment], list[Segment]]:
    """Two `.cleaned` segments that take the place of the first three."""
    local = log._core.state.local  # noqa: SLF001 - replacements are the cleaner's business
    old = list(local.segments)[:3]
    new = []
    for base_offset, sources in ((0, old[:2]), (6, old[2:])):
        segment = Segment(
            world.fs,
            DIRECTORY,
            base_offset,
            CONFIG,
            now_ms=START_MS,
            suffix=".cleaned",
            is_new=True,
        )
        for source in sources:
            data, _ = source.read(0, source.size_bytes)
            last = source.read_next_offset() - 1
            segment.append(data, last, START_MS, last)
        segment.seal()
        segment.flush()
        new.append(segment)
    return new, old


def replace(world: World, log: Log) -> None:
    new, old = copies(world, log)
    log._core.state.local.replace_segments(new, old)  # noqa: SLF001 - as above


def changes_of_a_replacement() -> int:
    world, log, _ = opened()
    new, old = copies(world, log)
    before = len(world.disk.changes)
    log._core.state.local.replace_segments(new, old)  # noqa: SLF001 - as above
    return len(world.disk.changes) - before


@kafka(
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase5",
)
@pytest.mark.parametrize("power_cut", [True, False], ids=["power cut", "kill"])
@pytest.mark.parametrize("step", range(1, changes_of_a_replacement() + 2))
def test_a_replacement_survives_a_crash_at_every_step(step: int, *, power_cut: bool) -> None:
    """The records are the same, from old segments or new ones, never from both."""
    world, log, values = opened()
    new, old = copies(world, log)
    try:
        with world.disk.power_cut_before(step):
            log._core.state.local.replace_segments(new, old)  # noqa: SLF001 - as above
    except PowerCut:
        pass
    world.restart(power_cut=power_cut)
    again = world.open_log(CONFIG, recovery_point=12)
    assert read_values(again) == values
    assert segment_bases(again) in ([0, 3, 6, 9], [0, 6, 9])
    names = world.disk.list_directory(DIRECTORY)
    assert [name for name in names if name.endswith((".cleaned", ".swap"))] == []
    again.maintenance.check_invariants()


def test_a_replacement_is_one_step_for_readers() -> None:
    """Afterwards the new segments answer, and the files of the old ones go later."""
    world, log, values = opened()
    replace(world, log)
    assert segment_bases(log) == [0, 6, 9]
    assert read_values(log) == values
    world.scheduler.advance(CONFIG.file_delete_delay_ms)
    names = world.disk.list_directory(DIRECTORY)
    assert [name for name in names if name.endswith(".deleted")] == []
    assert read_values(log) == values


def rename(world: World, base_offset: int, old: str, new: str) -> None:
    for suffix in SUFFIXES:
        path = log_path(base_offset, suffix=suffix)
        world.disk.rename(path.with_name(path.name + old), path.with_name(path.name + new))


@pytest.mark.parametrize(
    ("ready", "half", "expected"),
    [
        ((), False, [0, 3, 6, 9]),
        ((6,), False, [0, 3, 6, 9]),
        ((6,), True, [0, 3, 6, 9]),
        ((6, 0), False, [0, 6, 9]),
    ],
    ids=["all cleaned", "the higher is ready", "and half of the lower", "both are ready"],
)
def test_only_complete_outputs_take_the_place(
    ready: tuple[int, ...], expected: list[int], *, half: bool
) -> None:
    """If one output is incomplete the originals stay, even if others are complete."""
    world, log, values = opened()
    copies(world, log)
    for base_offset in ready:
        rename(world, base_offset, ".cleaned", ".swap")
    if half:
        name = log_path(0).name
        world.disk.rename(DIRECTORY / f"{name}.cleaned", DIRECTORY / f"{name}.swap")
    world.restart(power_cut=False)
    again = world.open_log(CONFIG, recovery_point=12)
    assert segment_bases(again) == expected
    assert read_values(again) == values


def test_an_index_left_over_from_a_promotion_is_promoted() -> None:
    """The log file has its name already, one index not yet: it belongs to it."""
    world, log, values = opened()
    log.close()
    world.restart(power_cut=False)
    index = log_path(3, suffix=".index")
    world.disk.rename(index, index.with_name(index.name + ".swap"))
    again = world.open_log(CONFIG, was_clean=True)
    assert (read_values(again), again.durability.recovery.recovered_segments) == (values, 0)
    assert world.disk.exists(index)
