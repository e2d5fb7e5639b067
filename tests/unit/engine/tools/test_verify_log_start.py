"""A check of a log whose start was raised over bytes that are there still."""

import pytest

from engine.errors import StorageOffline
from engine.fs import names
from engine.manager.manager import LogManager
from engine.records.control import ControlType, build_end_marker
from engine.tools.repair import carry_out, plan_repair
from engine.tools.verify import DirectoryCheck
from engine.types import AppendOrigin
from tests.support.builders import DATA, EVENTS, World, new_batch
from tests.support.damage import PARTITION
from tests.support.logs import read_values, segment_bases

EARLY, LATE = 11, 12


def started_late() -> tuple[World, LogManager]:
    """Two transactions end in the second segment; the log starts after the data of one."""
    world = World()
    manager = world.open_manager()
    manager.create_topic("events", 1, {"retention.ms": "-1"})
    log = manager.log(EVENTS)
    for producer_id in (EARLY, LATE):
        log.append(
            new_batch(
                3,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )
    log.roll()
    for producer_id in (EARLY, LATE):
        marker = build_end_marker(
            ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=world.clock.now_ms(),
        )
        log.append(marker, origin=AppendOrigin.COORDINATOR)
    log.append(new_batch(value=b"kept"))
    log.durability.flush()
    log.delete_records(3)
    manager.checkpoint()
    return world, manager


def derived(*, with_snapshots: bool) -> list[str]:
    """The derived files of the second segment, and the state below its end."""
    indexes = [names.index_name(6), names.time_index_name(6), names.txn_index_name(6)]
    snapshots = [names.snapshot_name(offset) for offset in (3, 6, 9)] if with_snapshots else []
    return [*indexes, *snapshots]


def problems(world: World) -> list[str]:
    return [one.detail for one in DirectoryCheck(world.fs, DATA).findings() if one.is_problem]


@pytest.mark.parametrize("with_snapshots", [False, True])
@pytest.mark.parametrize("is_clean", [False, True])
def test_an_abort_of_deleted_records_may_be_known_or_not(
    *, is_clean: bool, with_snapshots: bool
) -> None:
    """An older index has it, a rebuilt one does not; neither is wrong."""
    world, manager = started_late()
    assert problems(world) == []
    if is_clean:
        manager.close()
    world.restart(power_cut=False)
    for name in derived(with_snapshots=with_snapshots):
        world.fs.remove(PARTITION / name, missing_ok=True)
    manager = world.open_manager()
    log = manager.log(EVENTS)
    assert log.watermarks.log_start_offset == 3
    assert b"kept" in read_values(log)
    manager.close()
    assert problems(world) == []


def test_an_abort_of_records_that_are_there_is_missed() -> None:
    """Only what began below the log start is excused, and a repair finds the rest."""
    world, manager = started_late()
    manager.close()
    path = PARTITION / names.txn_index_name(6)
    with world.fs.open(path) as file:
        file.truncate(0)
    assert problems(world) == ["it does not name every aborted transaction of the segment"]
    plan = plan_repair(world.fs, DATA, world.config)
    assert plan.beyond_repair == ()
    world.restart(power_cut=False)
    carry_out(world.fs, DATA, plan, world.config)
    assert problems(world) == []


def test_a_removal_that_was_interrupted_is_left_to_the_start() -> None:
    """Offsets are missing below its end, where a start removes all that is left."""
    world = World()
    manager = world.open_manager()
    manager.create_topic("events", 1, {"retention.bytes": "0"})
    log = manager.log(EVENTS)
    for _ in range(4):
        log.append(new_batch())
        log.roll()
    log.durability.flush()
    manager.checkpoint()
    world.disk.fail("rename", path_end=names.time_index_name(2))
    with pytest.raises(StorageOffline):
        log.maintenance.run_retention()
    world.restart(power_cut=False)
    assert problems(world) == []
    left = [
        one.file.name
        for one in DirectoryCheck(world.fs, DATA).findings()
        if one.detail == "left by an interrupted removal, which opening completes"
    ]
    of_the_last = [names.index_name(3), names.log_name(3), names.time_index_name(3)]
    assert left == [names.time_index_name(2), *of_the_last]
    manager = world.open_manager()
    assert segment_bases(manager.log(EVENTS)) == [4]
    manager.close()
    assert problems(world) == []
