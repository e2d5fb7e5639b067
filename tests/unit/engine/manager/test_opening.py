"""Opening many logs at once: order, progress, failure."""

import threading

import pytest

from engine.errors import Recovering, StorageOffline
from engine.log.log import Log
from engine.manager.opening import (
    OpenJob,
    ProgressBoard,
    RecoveryProgress,
    flush_and_close,
    for_each,
    open_all,
)
from engine.types import TopicPartition
from tests.support.builders import World, new_batch
from tests.support.kafka import kafka
from tests.support.machine import Operation


def jobs(world: World, count: int) -> list[OpenJob]:
    return [
        OpenJob(TopicPartition("events", number), world.directory / f"events-{number}")
        for number in range(count)
    ]


def test_every_log_is_opened_and_counted() -> None:
    """All jobs become logs, in their order, and the board counts up to the last."""
    world = World()
    seen: list[RecoveryProgress] = []
    board = ProgressBoard(seen.append)
    opened, offline = open_all(
        jobs(world, 5), lambda job: world.open_log(log=job.log), threads=2, board=board
    )
    assert not offline
    assert [log.topic_partition.partition for log in opened] == [0, 1, 2, 3, 4]
    assert seen[0] == RecoveryProgress(5, 0)
    assert board.latest == seen[-1] == RecoveryProgress(5, 5)
    assert {log for progress in seen for log in progress.opening} == {
        log.topic_partition for log in opened
    }


def test_logs_are_opened_beside_each_other() -> None:
    """Two logs are opened at once: each waits until the other has begun."""
    world = World()
    both = threading.Barrier(2, timeout=30)

    def open_one(job: OpenJob) -> Log:
        both.wait()
        return world.open_log(log=job.log)

    opened, _ = open_all(jobs(world, 2), open_one, threads=2, board=ProgressBoard())
    assert len(opened) == 2


def test_after_a_failure_nothing_is_begun_and_nothing_stays_open() -> None:
    """The first error is raised, opened logs are closed, later jobs never start."""
    world = World()
    board = ProgressBoard()
    opened: list[Log] = []

    def open_one(job: OpenJob) -> Log:
        if job.log.partition == 1:
            raise StorageOffline("the disk is gone")
        opened.append(world.open_log(log=job.log))
        return opened[-1]

    with pytest.raises(StorageOffline, match="the disk is gone"):
        open_all(jobs(world, 3), open_one, threads=1, board=board)
    assert [log.topic_partition.partition for log in opened] == [0]
    assert board.latest == RecoveryProgress(3, 1)
    with pytest.raises(StorageOffline, match="closed"):
        opened[0].durability.commit()


def test_a_start_can_be_interrupted() -> None:
    """Once the board is stopped, the running log is finished and closed, and no more."""
    world = World()
    board = ProgressBoard()
    opened: list[Log] = []

    def open_one(job: OpenJob) -> Log:
        board.stop()
        opened.append(world.open_log(log=job.log))
        return opened[-1]

    with pytest.raises(Recovering):
        open_all(jobs(world, 3), open_one, threads=1, board=board)
    assert len(opened) == 1
    with pytest.raises(StorageOffline, match="closed"):
        opened[0].durability.commit()


@kafka("LogManagerTest.testWaitForAllToComplete")
def test_every_log_gets_its_turn_whatever_fails() -> None:
    """Work on many logs continues after a failure, and the failures are returned."""
    world = World()
    logs = [world.open_log(log=TopicPartition("events", number)) for number in range(3)]
    logs[1].maintenance.close_handles()
    failures = for_each(logs, flush_and_close, threads=2)
    assert [(log, type(error)) for log, error in failures] == [(logs[1], StorageOffline)]


def test_an_append_during_the_last_flush_is_flushed_as_well() -> None:
    """A clean stop promises all that the log holds, whenever the last append came."""
    world = World()
    log = world.open_log()
    log.append(new_batch())

    def append_once(operation: Operation) -> None:
        if operation.name == "sync_directory":  # the last of a flush
            world.disk.meanwhile = None
            log.append(new_batch())

    log.durability.flush()
    log.append(new_batch())
    world.disk.meanwhile = append_once
    flush_and_close(log)
    assert log.durability.recovery_point == log.watermarks.high_watermark == 3
