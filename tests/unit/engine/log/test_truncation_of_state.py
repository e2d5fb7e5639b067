"""Rows about truncation."""

import pytest

from tests.support.builders import World
from tests.support.conformance_places import DENSE, offsets_of
from tests.support.kafka import kafka
from tests.support.logs import DIRECTORY, fill, fill_segments, read_values, segment_bases


@kafka("UnifiedLogTest.testTruncateTo")
@pytest.mark.parametrize("target", [9, 5, 1, 0])
def test_a_truncation_keeps_everything_below(target: int) -> None:
    """The log ends at the target, is smaller, and takes the next record there."""
    log = World().open_log(DENSE)
    values = fill(log, batches=10)
    log.durability.commit()
    size = log.reader.size_bytes
    assert log.truncate_to(target) == target
    assert log.reader.size_bytes == size * target // 10
    assert read_values(log) == values[:target]
    again = fill(log, batches=3, first=100)
    log.durability.commit()
    assert read_values(log) == values[:target] + again
    log.maintenance.check_invariants()


@kafka("LocalLogTest.testTruncateTo")
def test_later_segments_go_with_a_truncation() -> None:
    """The segment that holds the target is active again, and appends continue at the target."""
    world = World()
    log = world.open_log(DENSE)
    values = fill_segments(log, 3, 3, 3, 3)
    assert log.durability.flush() == 12
    log.truncate_to(7)
    assert segment_bases(log) == [0, 3, 6]
    assert (log.watermarks.log_end_offset, log.durability.recovery_point) == (7, 7)
    assert fill(log, batches=1, first=7)
    log.durability.commit()
    assert read_values(log) == values[:8]
    world.scheduler.advance(60_000)
    assert offsets_of(world, ".log") == [0, 3, 6]


@kafka("LocalLogTest.testCreateAndDeleteSegment")
def test_what_a_new_segment_replaces_waits_as_deleted() -> None:
    """Its files are renamed at once, and removed after the delay."""
    world = World()
    log = world.open_log(DENSE, log_start_offset=5)
    fill(log, batches=2)
    log.truncate_to(0)
    found = world.fs.list_directory(DIRECTORY)
    assert {"00000000000000000000.log", "00000000000000000005.log.deleted"} <= set(found)
    assert log.reader.size_bytes == 0
    values = fill(log, batches=1)
    world.scheduler.advance(60_000)
    assert [name for name in world.fs.list_directory(DIRECTORY) if "deleted" in name] == []
    log.durability.commit()
    assert read_values(log) == values
