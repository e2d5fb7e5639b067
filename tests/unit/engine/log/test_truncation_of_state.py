"""Rows about truncation."""

import pytest

from engine.errors import InvalidRequestValue
from tests.support.builders import World
from tests.support.conformance_places import DENSE, offsets_of
from tests.support.kafka import kafka
from tests.support.logs import DIRECTORY, fill, fill_segments, read_values, segment_bases


@kafka("UnifiedLogTest.testTruncateTo")
def test_a_truncation_beyond_the_end_changes_nothing() -> None:
    """Neither at the end nor after it is anything cut."""
    log = World().open_log(DENSE)
    values = fill(log, batches=10)
    log.durability.commit()
    before = (log.reader.size_bytes, log.reader.tag)
    assert log.truncate_to(10) == log.truncate_to(11) == 10
    assert (log.reader.size_bytes, log.reader.tag) == before
    assert read_values(log) == values


@kafka("UnifiedLogTest.testTruncateTo")
@pytest.mark.parametrize("target", [9, 5, 1, 0])
def test_a_truncation_leaves_what_lies_below(target: int) -> None:
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


@kafka("UnifiedLogTest.testTruncateTo")
def test_a_truncation_below_the_first_segment_restarts_there() -> None:
    """Of a log that begins at 50, one to 20 leaves an empty log at 20."""
    log = World().open_log(DENSE, log_start_offset=50)
    fill(log, batches=3)
    log.truncate_to(20)
    marks = log.watermarks
    assert (marks.log_start_offset, marks.high_watermark, marks.log_end_offset) == (20, 20, 20)
    assert segment_bases(log) == [20]
    with pytest.raises(InvalidRequestValue):
        log.truncate_to(-1)


@kafka("LocalLogTest.testTruncateTo")
def test_later_segments_go_with_a_truncation() -> None:
    """The segment that holds the target is active again, and appends go on at the target."""
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


@kafka("UnifiedLogTest.testTruncateFullyAndStart", "LocalLogTest.testTruncateFullyAndStartAt")
@pytest.mark.parametrize("offset", [0, 4, 7, 100])
def test_a_truncation_below_the_first_segment_leaves_an_empty_one(offset: int) -> None:
    """Start, high watermark and end are the new offset, and appends begin there."""
    log = World().open_log(DENSE, log_start_offset=200)
    fill_segments(log, 4, 3)
    log.durability.commit()
    log.truncate_to(offset)
    marks = log.watermarks
    assert (marks.log_start_offset, marks.high_watermark, marks.log_end_offset) == (offset,) * 3
    assert (segment_bases(log), log.reader.size_bytes, log.durability.recovery_point) == (
        [offset],
        0,
        offset,
    )
    values = fill(log, batches=2)
    log.durability.commit()
    assert read_values(log) == values
    log.maintenance.check_invariants()


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
