"""Opening a log with a segment that must be split, and a crash at every step of that."""

import contextlib

import pytest

from engine.fs import names
from engine.types import INT32_MAX
from tests.support.builders import World
from tests.support.filesystem import PowerCut
from tests.support.kafka import kafka
from tests.support.logs import DIRECTORY, log_path, read_headers, segment_bases, with_config
from tests.support.segments import batch_at

FAR = INT32_MAX + 10
OFFSETS = [0, 1, FAR, FAR + 1, 3 * FAR]
COMPACTED = with_config(cleanup_policy=("compact",))


def overflowed() -> World:
    """A world with a log of one segment, as brokers of long ago could write it."""
    world = World()
    world.fs.make_directory(DIRECTORY)
    with world.disk.open(log_path(), create=True) as file:
        for offset in OFFSETS:
            file.append(batch_at(offset))
    world.disk.sync_everything()
    return world


def changes_of_a_start() -> int:
    world = overflowed()
    before = len(world.disk.changes)
    world.open_log(COMPACTED)
    return len(world.disk.changes) - before


@kafka("LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow")
def test_a_segment_that_reaches_too_far_is_split() -> None:
    """Its records stay, in several."""
    world = overflowed()
    log = world.open_log(COMPACTED)
    assert segment_bases(log) == [0, FAR, 3 * FAR]
    assert [header.base_offset for header in read_headers(log)] == OFFSETS
    log.maintenance.check_invariants()


def test_a_segment_below_the_recovery_point_that_reaches_too_far_is_split() -> None:
    """Below it, it is only scanned because its indexes are missing; none of their files is left."""
    world = overflowed()
    path = log_path(10 * FAR)
    with world.disk.open(path, create=True) as file:
        file.append(batch_at(10 * FAR))
    log = world.open_log(COMPACTED, recovery_point=10 * FAR + 1)
    assert segment_bases(log) == [0, FAR, 3 * FAR, 10 * FAR]
    assert [header.base_offset for header in read_headers(log)] == [*OFFSETS, 10 * FAR]
    left = world.disk.list_directory(DIRECTORY)
    assert [name for name in left if name.endswith(names.TEMPORARY_SUFFIX)] == []


@kafka(
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase5",
)
@pytest.mark.parametrize("power_cut", [True, False], ids=["power cut", "kill"])
@pytest.mark.parametrize("step", range(1, changes_of_a_start() + 1))
def test_a_split_survives_a_crash_at_every_step(step: int, *, power_cut: bool) -> None:
    """The next start has the same records, whatever it finds."""
    world = overflowed()
    with contextlib.suppress(PowerCut), world.disk.power_cut_before(step):
        world.open_log(COMPACTED)
    world.restart(power_cut=power_cut)
    log = world.open_log(COMPACTED)
    assert [header.base_offset for header in read_headers(log)] == OFFSETS
    left = world.disk.list_directory(DIRECTORY)
    assert [name for name in left if name.endswith((".cleaned", ".swap"))] == []
    log.maintenance.check_invariants()
