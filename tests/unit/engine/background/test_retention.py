"""The periodic pass over all logs that removes old segments."""

import errno
import logging

import pytest

from engine.config import LogConfig
from engine.log.log import Log
from engine.metrics import NullRecorder
from engine.runtime import run_retention_pass
from engine.types import TopicPartition
from tests.support.builders import World, new_batch
from tests.support.kafka import kafka


def filled(world: World, number: int, config: LogConfig, *, batches: int = 4) -> Log:
    """A log with one batch in each of its segments, all committed."""
    log = world.open_log(config, log=TopicPartition("events", number))
    for _ in range(batches):
        log.append(new_batch(value=b"v" * 50))
    log.durability.commit()
    assert log.reader.segments_count == batches
    return log


@kafka(
    "LogManagerTest.testCleanupExpiredSegments",
    "LogManagerTest.testCleanupSegmentsToMaintainSize",
)
def test_every_log_loses_what_its_configuration_gives_up() -> None:
    """By age and by size, each log by its own rule; the pass counts the segments."""
    world = World()
    keeps = filled(world, 0, LogConfig(segment_bytes=200, retention_ms=-1))
    by_size = filled(world, 1, LogConfig(segment_bytes=200, retention_ms=-1, retention_bytes=300))
    by_age = filled(world, 2, LogConfig(segment_bytes=200, retention_ms=1_000))
    world.clock.advance(1_001)
    assert run_retention_pass([keeps, by_size, by_age]) == 1 + 4
    assert keeps.watermarks.log_start_offset == 0
    assert by_size.watermarks.log_start_offset == 1
    assert by_age.watermarks.log_start_offset == 4


@kafka(
    "LogManagerTest.testDoesntCleanLogsWithCompactPolicy",
    "LogManagerTest.testDoesntCleanLogsWithCompactDeletePolicy",
)
def test_a_compacted_log_is_left_to_the_cleaner() -> None:
    """Kafka's retention pass skips logs whose policy has compact in it; so does this one."""
    world = World()
    log = filled(
        world,
        0,
        LogConfig(segment_bytes=200, retention_ms=1, cleanup_policy=("compact", "delete")),
    )
    world.clock.advance(1_000)
    assert run_retention_pass([log]) == 0
    assert log.watermarks.log_start_offset == 0


def test_a_log_that_fails_does_not_keep_the_others_from_their_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A closed log is reported, the next one is still cleared out, and both are in the log."""
    caplog.set_level(logging.INFO)
    world = World()
    closed = filled(world, 0, LogConfig(segment_bytes=200, retention_ms=1))
    log = filled(world, 1, LogConfig(segment_bytes=200, retention_ms=1))
    world.clock.advance(1_000)
    closed.maintenance.close_handles()
    assert run_retention_pass([closed, log]) == 4
    assert "retention of events-0 failed" in caplog.text
    assert "events-1: removed segment 0" in caplog.text


def test_whatever_a_log_meets_the_others_are_cleared_out(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error ended the pass for all logs after it."""

    class Failing(NullRecorder):
        def segments_deleted(self, log: TopicPartition, *, count: int, size_bytes: int) -> None:
            if log.partition == 0:
                raise OSError(errno.EPIPE, "Broken pipe")

    world = World(recorder=Failing())
    logs = [filled(world, n, LogConfig(segment_bytes=200, retention_ms=1)) for n in range(2)]
    world.clock.advance(1_000)
    assert run_retention_pass(logs) == 4
    assert [log.watermarks.log_start_offset for log in logs] == [4, 4]
    assert "Broken pipe" in caplog.text
