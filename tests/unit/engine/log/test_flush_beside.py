"""A flush during which the log goes elsewhere: what has left it is nothing to flush."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.manager.manager import LogManager
from engine.metrics import NullRecorder
from engine.types import TopicPartition
from tests.support.builders import EVENTS, SMALL_CONFIG, new_batch
from tests.support.filesystem import ForgetfulDisk
from tests.support.time import ManualClock, ManualScheduler

HERE, THERE = Path("/here"), Path("/there")


class BetweenSyncs(NullRecorder):
    """Does something once, after the next commit of a log and before the rest of its flush."""

    def __init__(self) -> None:
        self.work: Callable[[], None] | None = None

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None:
        work, self.work = self.work, None
        if work is not None:
            work()


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
