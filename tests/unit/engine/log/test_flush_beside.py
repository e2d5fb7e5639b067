"""Commits and flushes during which the log is closed, cut, moved or rolled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import StorageOffline
from engine.manager.manager import LogManager
from engine.metrics import NullRecorder
from engine.types import TopicPartition
from tests.support.builders import EVENTS, SMALL_CONFIG, World, new_batch
from tests.support.filesystem import ForgetfulDisk
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
        log.commit()


def test_a_flush_that_a_close_overtakes_says_so() -> None:
    """All is on the disk, and a flush has nothing to say of that: the log is closed."""
    recorder = BetweenSyncs()
    log = World(recorder=recorder).open_log()
    log.append(new_batch())
    recorder.work = log.close
    with pytest.raises(StorageOffline, match="is closed"):
        log.flush()


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
    log.flush()
    assert log.directory.parent != source
    assert not any(health.is_offline for health in manager.directories)
    log.append(new_batch())
    assert log.commit() == 1
    manager.close()


def test_a_commit_beside_a_roll_whose_sync_fails_shows_nothing() -> None:
    """The kernel has told the roll of the failure: the commit's own sync would succeed.

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
        log.commit()
    assert log.watermarks.high_watermark == 0
