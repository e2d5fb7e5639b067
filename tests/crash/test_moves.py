"""Power cuts after a move: acknowledged data stays, whatever happened to the original.

So does state without batches: producers whose batches retention has removed.
"""

from __future__ import annotations

import errno

import pytest

from engine.errors import StorageFull
from engine.fs import names
from engine.log.log import Log
from engine.manager.manager import LogManager
from tests.support.builders import EVENTS, World, new_batch
from tests.support.filesystem import PowerCut
from tests.support.logs import fill, read_values
from tests.support.machine import Operation
from tests.unit.engine.manager.test_directories import A, B, opened, restarted
from tests.unit.engine.manager.test_moving import prepared

A_MINUTE_MS = 60_000


def after_the_removal(world: World) -> LogManager:
    """The start after a power cut that comes after the removal of the original.

    The kernel has written back the names in the directory of the original, and no others.
    """
    world.scheduler.advance(A_MINUTE_MS)
    world.disk.sync_directory(A)
    return restarted(world)


def lack_space_for_checkpoints(world: World) -> None:
    """Refuse the checkpoints that follow a move, which would sync the directory as well."""
    path_end = f"{B}/{names.LOG_START_CHECKPOINT}.tmp"
    world.disk.fail("append", nth=2, error=errno.ENOSPC, path_end=path_end)


def test_a_move_is_durable_before_its_original_can_be_removed() -> None:
    """The copy has the partition's name on disk: without an original no start gives it one."""
    world, manager, values = prepared()
    lack_space_for_checkpoints(world)
    manager.move_partition(EVENTS, B)
    assert not world.disk.forget_faults(), "it was not met"
    log = after_the_removal(world).log(EVENTS)
    assert log.directory.parent == B
    assert read_values(log) == values


def test_a_move_that_a_start_finishes_is_durable_before_its_original_can_be_removed() -> None:
    """As above, where the process died between the two renames."""
    world, manager, values = prepared()

    def die(operation: Operation) -> None:
        if operation.name == "rename" and operation.path.name.endswith("-future"):
            raise PowerCut

    world.disk.meanwhile = die
    with pytest.raises(PowerCut):
        manager.move_partition(EVENTS, B)
    world.disk.meanwhile = None
    restarted(world, power_cut=False)
    log = after_the_removal(world).log(EVENTS)
    assert log.directory.parent == B
    assert read_values(log) == values


@pytest.mark.parametrize("lack", [0, errno.EMFILE], ids=["removed", "put away"])
def test_a_move_that_was_refused_is_not_begun_again_after_a_power_cut(lack: int) -> None:
    """The copy is durably removed, or has durably lost the name that requests the move."""
    world, manager, values = prepared()
    world.disk.fail("append", error=errno.ENOSPC, path_end="00000000000000000000.log")
    if lack:
        world.disk.fail("remove_tree", error=lack, path_end="-future")
    with pytest.raises(StorageFull):
        manager.move_partition(EVENTS, B)
    assert not world.disk.forget_faults(), "it was not met"
    manager = restarted(world)
    assert manager.unfinished_moves() == {}
    assert read_values(manager.log(EVENTS)) == values


def of_a_removed_producer() -> tuple[World, LogManager, Log]:
    """A log in A of small segments, with a producer whose three batches were removed."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {"segment.bytes": "200", "retention.ms": "-1"})
    log = manager.log(EVENTS)
    for sequence in range(3):
        log.append(of_producer(sequence))
    log.roll()
    fill(log, batches=9)
    log.durability.commit()
    log.delete_records(3)
    log.maintenance.run_retention()
    assert log.directory.parent == A
    assert log.reader.first_segment_base_offset == 3
    assert len(log.reader.segments) > 3
    return world, manager, log


def of_producer(sequence: int) -> bytearray:
    return new_batch(producer_id=3, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("sequence", range(3))
def test_a_move_knows_batches_that_retention_removed(sequence: int) -> None:
    """The last five batches of a producer, of which a snapshot only holds the newest."""
    _, manager, log = of_a_removed_producer()
    manager.move_partition(EVENTS, B)
    assert log.append(of_producer(sequence)).is_duplicate
