"""The state after the last step of a procedure, and in the middle of steps that seemed atomic.

Each fault was found by reading, and reproduced on a disk that fails or forgets before it was fixed.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from engine.errors import Overloaded, StorageFull
from engine.fs import names
from engine.log.log import Log
from engine.manager.manager import LogManager
from tests.support.builders import DATA, EVENTS, World, new_batch
from tests.support.logs import append_values, fill, read_records, read_values, segment_bases
from tests.unit.engine.manager.test_directories import A, B, opened, restarted

CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
)
NO_SPACE = pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)


def tell_by_name_alone(world: World, manager: LogManager) -> Log:
    """A log of one empty segment, whose name alone says that offsets 0 and 1 were assigned."""
    manager.create_topic("events", 1, {"segment.index.bytes": "12", "retention.ms": "1"})
    log = manager.log(EVENTS)
    append_values(log, b"one", b"two")
    log.durability.flush()
    world.clock.advance(10)
    log.maintenance.run_retention()
    log.durability.flush()
    manager.checkpoint()
    assert segment_bases(log) == [2]
    return log


@pytest.mark.parametrize("seed", range(12))
def test_a_roll_of_an_empty_segment_keeps_the_log_end(seed: int) -> None:
    """Whichever names a power cut leaves, no offset is assigned twice.

    An empty segment with a full index was renamed and recreated without a sync in between: a cut
    that kept only the first step left a directory without a segment, and the log began at 0 again.
    """
    world = World()
    log = tell_by_name_alone(world, world.open_manager())
    append_values(log, b"three")  # its index is full, so it rolls first
    world.disk.restart(random=Random(seed))
    world.restart(power_cut=False)
    log = world.open_manager().log(EVENTS)
    assert log.watermarks.log_start_offset == 2
    assert log.watermarks.log_end_offset in {2, 3}
    assert log.durability.recovery.damage is None


def ready_to_move() -> tuple[World, LogManager, Log, Path]:
    """A log with a producer in one of two directories, and the path of the second one."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {})
    log = manager.log(EVENTS)
    log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=0))
    log.durability.commit()
    return world, manager, log, B if log.directory.parent == A else A


def is_repetition(log: Log) -> bool:
    return log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=0)).is_duplicate


@NO_SPACE
@pytest.mark.parametrize("place", ["source", "target"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_move_that_took_place_says_so(name: str, place: str, error: int) -> None:
    """If space lacks for the checkpoints after it, the move has still succeeded.

    The caller got the error that the partition is where it was.
    """
    world, manager, log, target = ready_to_move()
    source = log.directory.parent
    nth = 1 if place == "source" else 2  # the first of the target is that of the copy
    directory = source if place == "source" else target
    world.disk.fail("append", nth=nth, error=error, path_end=f"{directory}/{name}.tmp")
    manager.move_partition(EVENTS, target)
    assert not world.disk.forget_faults(), "it was not met"
    assert log.directory.parent == target
    assert is_repetition(log)
    world.restart(power_cut=True)
    manager = opened(world)
    assert manager.log(EVENTS).directory.parent == target
    assert manager.unfinished_moves() == {}
    assert len(read_records(manager.log(EVENTS))) == 1
    assert is_repetition(manager.log(EVENTS))


@NO_SPACE
def test_a_log_moves_away_from_a_disk_that_takes_nothing_more(error: int) -> None:
    """Its producer state is moved without a file on the old disk.

    There was one, and lack of space for it took the full directory offline.
    """
    world, manager, log, target = ready_to_move()
    source = log.directory
    for name in ("append", "create"):
        world.disk.fail(name, error=error, path_end=f"{source}/{names.snapshot_name(1)}")
    manager.move_partition(EVENTS, target)
    assert log.directory.parent == target
    assert is_repetition(log)
    assert [one.is_offline for one in manager.directories] == [False, False]
    assert is_repetition(restarted(world).log(EVENTS))


@NO_SPACE
@pytest.mark.parametrize(
    ("name", "path_end"), [("open", names.LOG_SUFFIX), ("open_index", names.INDEX_SUFFIXES[0])]
)
def test_a_copy_that_cannot_be_opened_changes_nothing(name: str, path_end: str, error: int) -> None:
    """It is opened before any rename: the log stays where it was, and can still be moved.

    It was opened after the last rename, and a failure there took the target offline.
    """
    world, manager, log, target = ready_to_move()
    source = log.directory
    met = 0
    for nth in range(1, 40):
        world.disk.fail(name, nth=nth, error=error, path_end=path_end)
        try:
            manager.move_partition(EVENTS, target)
        except (Overloaded, StorageFull):
            met += 1
            assert log.directory == source
            assert manager.unfinished_moves() == {}
            assert is_repetition(log)
        assert [one.is_offline for one in manager.directories] == [False, False]
        if world.disk.forget_faults():
            break
        if log.directory != source:
            manager.move_partition(EVENTS, source.parent)
    assert met
    assert log.directory.parent == target


def test_a_log_that_starts_behind_its_last_batch_keeps_its_end_when_it_is_moved() -> None:
    """Its copy is empty, and ends where the log was cut: no offset is given twice.

    A copy without a batch was not rolled to the end, and the log went back to its start.
    """
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {})
    log = manager.log(EVENTS)
    log.append(new_batch(2))
    log.append(new_batch(4))
    assert manager.truncate(log, 3) == 3
    log.delete_records(2)
    log_id = log.reader.log_id
    manager.move_partition(EVENTS, B if log.directory.parent == A else A)
    for found in (log, restarted(world).log(EVENTS)):
        assert found.watermarks.log_start_offset == 2
        assert found.watermarks.log_end_offset == 3
        assert found.reader.log_id == log_id
        assert found.durability.recovery.damage is None


@NO_SPACE
@pytest.mark.parametrize("name", [*CHECKPOINTS, names.TOPICS_FILE])
def test_a_recreated_topic_has_nothing_of_the_earlier_one(name: str, error: int) -> None:
    """Acknowledged records stay, even if the old lines could not be removed from the checkpoints.

    The deletion was refused midway, the topic recreated under its name, and the next start dropped
    its records, because it began the log where the old one had.
    """
    world = World()
    manager = world.open_manager()
    manager.create_topic("events", 1, {})
    log = manager.log(EVENTS)
    fill(log, batches=5)
    log.durability.flush()
    log.delete_records(4)
    manager.checkpoint()
    nth = 2 if name == names.TOPICS_FILE else 1  # the first of these marks the deletion
    world.disk.fail("append", nth=nth, error=error, path_end=f"{DATA}/{name}.tmp")
    manager.delete_topic("events")
    assert not world.disk.forget_faults(), "it was not met"
    assert "events" not in manager.topics()
    manager.create_topic("events", 1, {})
    values = fill(manager.log(EVENTS), batches=2)
    manager.log(EVENTS).durability.commit()
    world.restart(power_cut=True)
    assert read_values(world.open_manager().log(EVENTS)) == values


def test_a_topic_waits_for_space_to_forget_the_one_before() -> None:
    """Until the old lines can be removed, it cannot be created; nothing else is delayed."""
    world = World()
    manager = world.open_manager({"events": 1})
    for _ in range(2):
        path_end = f"{names.RECOVERY_POINT_CHECKPOINT}.tmp"
        world.disk.fail("append", error=errno.ENOSPC, path_end=path_end)
    manager.delete_topic("events")
    manager.create_topic("other", 1, {})
    with pytest.raises(StorageFull):
        manager.create_topic("events", 1, {})
    assert not world.disk.forget_faults()
    manager.create_topic("events", 1, {})
    assert sorted(manager.topics()) == ["events", "other"]
    world.restart(power_cut=True)
    assert sorted(world.open_manager().topics()) == ["events", "other"]


@NO_SPACE
def test_a_truncation_that_took_place_says_so(error: int) -> None:
    """The checkpoint lines written after it matter less than its success.

    The earlier ones are still correct.
    """
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    values = fill(log, batches=4)
    log.durability.flush()
    path_end = f"{names.RECOVERY_POINT_CHECKPOINT}.tmp"
    world.disk.fail("append", nth=2, error=error, path_end=path_end)
    assert manager.truncate(log, 2) == 2
    assert not world.disk.forget_faults(), "it was not met"
    world.restart(power_cut=True)
    assert read_values(world.open_manager().log(EVENTS)) == values[:2]
