"""Commits and flushes during which the log is closed, cut, moved or rolled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import StorageOffline
from engine.manager.manager import LogManager
from engine.metrics import NullRecorder
from engine.segment.indexes import SealedFiles
from engine.types import TopicPartition
from tests.support.builders import EVENTS, SMALL_CONFIG, World, new_batch
from tests.support.filesystem import ForgetfulDisk
from tests.support.logs import fill_segments, read_values, with_config
from tests.support.machine import Operation
from tests.support.time import ManualClock, ManualScheduler

HERE, THERE = Path("/here"), Path("/there")


class BetweenSyncs(NullRecorder):
    """Does something once, after the next commit of a log and before the rest of its flush."""

    def __init__(self) -> None:
        self.work: Callable[[], object] | None = None

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None:
        work, self.work = self.work, None
        if work is not None:
            work()


def test_a_commit_that_a_close_overtakes_says_so() -> None:
    """The files of the second segment are closed while the first one is synced."""
    world = World()
    log = world.open_log()
    log.append(new_batch())
    log.roll()
    log.append(new_batch())

    def close_once(operation: Operation) -> None:
        if operation.name == "sync":
            world.disk.meanwhile = None
            log.close()

    world.disk.meanwhile = close_once
    with pytest.raises(StorageOffline, match="is closed"):
        log.durability.commit()


def test_a_flush_that_a_close_overtakes_says_so() -> None:
    """Everything is on disk, but the log is closed: the flush raises that error."""
    recorder = BetweenSyncs()
    log = World(recorder=recorder).open_log()
    log.append(new_batch())
    recorder.work = log.close
    with pytest.raises(StorageOffline, match="is closed"):
        log.durability.flush()


def test_a_scheduled_flush_that_a_close_overtakes_has_nothing_to_say() -> None:
    """No caller waits for it, and the close has written everything."""
    recorder = BetweenSyncs()
    world = World(recorder=recorder)
    log = world.open_log()
    log.append(new_batch())
    log.roll()
    closed: list[bool] = []
    recorder.work = lambda: closed.append(log.close())
    world.scheduler.run_due()
    assert closed == [True]
    assert not world.health.is_offline


def test_a_scheduled_flush_whose_sync_fails_says_so() -> None:
    """The log is still open: the scheduler logs the error."""
    world = World()
    log = world.open_log()
    log.append(new_batch())
    log.roll()
    world.disk.fail("sync", path_end=".log")
    with pytest.raises(StorageOffline):
        world.scheduler.run_due()


def test_a_flush_passes_over_a_segment_that_retention_removes_meanwhile() -> None:
    """Its indexes rested when its files were removed: there is nothing left to sync."""
    world = World()
    log = world.open_log(with_config(file_delete_delay_ms=0))
    values = fill_segments(log, 2, 2, 1)
    log.durability.commit()
    second = log.reader.segments[1]
    second.indexes.sync()
    second.resting.allow(SealedFiles(limit=1))

    def remove_once(operation: Operation) -> None:
        if operation.name == "sync" and operation.path.suffix == ".index":
            world.disk.meanwhile = None
            log.delete_records(4)
            assert [one.base_offset for one in log.maintenance.run_retention()] == [0, 2]
            world.scheduler.run_due()

    world.disk.meanwhile = remove_once
    assert log.durability.flush() == 5
    with pytest.raises(ValueError, match="is closed"):
        second.indexes.sync()
    assert read_values(log) == values[4:]


def test_a_flush_beside_a_truncation_and_a_move_leaves_the_directory_online() -> None:
    """The indexes of a segment that was cut off are not looked for where the log was."""
    recorder, clock = BetweenSyncs(), ManualClock()
    manager = LogManager(
        [HERE, THERE],
        fs=ForgetfulDisk(),
        clock=clock,
        scheduler=ManualScheduler(clock),
        recorder=recorder,
        config=SMALL_CONFIG,
    )
    manager.open()
    manager.create_topic(EVENTS.topic, 1, {})
    log = manager.log(EVENTS)
    source = log.directory.parent
    log.append(new_batch())
    log.roll()

    def truncate_and_move() -> None:
        manager.truncate(log, 0)
        manager.move_partition(EVENTS, THERE if source == HERE else HERE)

    recorder.work = truncate_and_move
    log.durability.flush()
    assert log.directory.parent != source
    assert not any(health.is_offline for health in manager.directories)
    log.append(new_batch())
    assert log.durability.commit() == 1
    manager.close()


def moving_world() -> tuple[LogManager, ForgetfulDisk, ManualScheduler]:
    """Two data directories, and a log of two unflushed segments."""
    disk, clock = ForgetfulDisk(), ManualClock()
    scheduler = ManualScheduler(clock)
    manager = LogManager(
        [HERE, THERE],
        fs=disk,
        clock=clock,
        scheduler=scheduler,
        recorder=NullRecorder(),
        config=SMALL_CONFIG,
    )
    manager.open()
    manager.create_topic(EVENTS.topic, 1, {})
    log = manager.log(EVENTS)
    log.append(new_batch())
    log.roll()
    log.append(new_batch())
    return manager, disk, scheduler


@pytest.mark.parametrize("nth", [1, 4], ids=["the first", "the last"])
def test_a_flush_that_a_move_overtakes_during_its_indexes_is_done(nth: int) -> None:
    """Everything was flushed in the new directory; the old files are closed during the flush."""
    manager, disk, scheduler = moving_world()
    log = manager.log(EVENTS)
    source = log.directory.parent
    synced: list[Path] = []

    def move_once(operation: Operation) -> None:
        if operation.name == "sync" and operation.path.suffix in {".index", ".timeindex"}:
            synced.append(operation.path)
            if len(synced) == nth:
                disk.meanwhile = None
                manager.move_partition(EVENTS, THERE if source == HERE else HERE)
                scheduler.advance(log.config.file_delete_delay_ms)

    disk.meanwhile = move_once
    assert log.durability.flush() == 2
    assert log.directory.parent != source
    assert not any(health.is_offline for health in manager.directories)
    log.append(new_batch())
    assert log.durability.commit() == 3
    manager.close()


def test_a_commit_beside_a_roll_whose_sync_fails_shows_nothing() -> None:
    """The kernel reports the failure to the roll: the commit's own sync would succeed.

    A log with gaps syncs its last segment before the next one begins.
    """
    world = World()
    manager = world.open_manager()
    manager.create_topic(EVENTS.topic, 1, {"cleanup.policy": "compact"})
    log = manager.log(EVENTS)
    log.append(new_batch())
    log.roll()
    log.append(new_batch())

    def roll_once(operation: Operation) -> None:
        if operation.name == "open_directory":  # the commit's, before it syncs anything
            world.disk.meanwhile = None
            world.disk.fail("sync", path_end=".log")
            with pytest.raises(StorageOffline):
                log.roll()

    world.disk.meanwhile = roll_once
    with pytest.raises(StorageOffline):
        log.durability.commit()
    assert log.watermarks.high_watermark == 0
