"""Rows about rolls and flushes."""

from pathlib import Path

import pytest

from engine.errors import InvalidRequestValue
from engine.fs.posix import PosixFileSystem
from engine.log.files import LocalLog
from engine.log.results import RollResult
from engine.segment.segment import Segment
from engine.segment.segments import Segments
from tests.support.builders import World
from tests.support.conformance_places import DENSE, offsets_of
from tests.support.kafka import kafka
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    fill,
    fill_segments,
    read_values,
    segment_bases,
)


@kafka("UnifiedLogTest.testRollSegmentThatAlreadyExists")
def test_rolling_an_empty_segment_leaves_it() -> None:
    """There is still one segment, which takes appends."""
    log = World().open_log(DENSE)
    for _ in range(2):
        assert log.roll() == RollResult(False, 0, 0)
    assert segment_bases(log) == [0]
    values = fill(log, batches=2)
    log.durability.commit()
    assert read_values(log) == values
    assert log.roll() == RollResult(True, 0, 2)
    assert log.roll() == RollResult(False, 2, 2)


@kafka("LocalLogTest.testNewSegmentsAfterRoll")
def test_new_segments_begin_at_the_log_end_which_a_roll_does_not_move() -> None:
    """Each roll seals what there is."""
    log = World().open_log(DENSE)
    for number in range(1, 4):
        fill(log, batches=number)
        end = log.watermarks.log_end_offset
        rolled = log.roll()
        assert rolled.new_base_offset == log.watermarks.log_end_offset == end
    assert segment_bases(log) == [0, 1, 3, 6]


@kafka("LocalLogTest.testRollSegmentErrorWhenNextOffsetIsIllegal")
def test_a_segment_cannot_begin_below_the_active_one() -> None:
    """Nor at its base if it has batches."""
    world = World()
    world.fs.make_directory(DIRECTORY)
    local = LocalLog(world.context(), DIRECTORY, CONFIG, Segments())
    active = local.open_segment(5)
    with pytest.raises(InvalidRequestValue):
        local.roll(4)
    active.records.append(b"x")
    with pytest.raises(InvalidRequestValue):
        local.roll(5)
    assert offsets_of(world, ".log") == [5]


@kafka("LocalLogTest.testLogFlush")
def test_a_flush_moves_the_recovery_point_to_the_end_of_then() -> None:
    """To the end as it was; what comes after waits for the next one."""
    world = World()
    log = world.open_log(DENSE)
    fill(log, batches=3)
    assert (log.durability.recovery_point, log.watermarks.log_end_offset) == (0, 3)
    assert log.durability.flush() == log.durability.recovery_point == 3
    fill(log, batches=1)
    assert (log.durability.recovery_point, log.watermarks.log_end_offset) == (3, 4)


@kafka("LogSegmentTest.testDeleteIfExistsWithGetParentIsNull")
def test_a_segment_in_a_relative_directory_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path without a parent is as good as any."""
    monkeypatch.chdir(tmp_path)
    segment = Segment(PosixFileSystem(), Path(), 0, CONFIG, now_ms=0, is_new=True)
    segment.indexes.offset.sync()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".index", ".log"]
    segment.remove_files()
    segment.close_handles()
    assert list(tmp_path.iterdir()) == []


@kafka("UnifiedLogTest.testLogSegmentsCallCorrect", "LocalLogTest.testNonActiveSegmentsFrom")
@pytest.mark.parametrize(
    ("start", "end", "bases"),
    [
        (0, 12, [0, 3, 6, 9]),
        (0, 3, [0]),
        (2, 4, [0, 3]),
        (3, 6, [3]),
        (5, 7, [3, 6]),
        (9, 12, [9]),
        (99, 100, [9]),
    ],
)
def test_a_range_of_offsets_lies_in_the_segments_from_its_floor_on(
    start: int, end: int, bases: list[int]
) -> None:
    """On a log of four segments; without the active one if the range ends where that begins."""
    log = World().open_log(DENSE)
    fill_segments(log, 3, 3, 3, 3)
    segments = log._core.state.local.segments  # noqa: SLF001 - the ranges of a log are its own
    assert [one.base_offset for one in segments.overlapping(start, end)] == bases
    below = segments.overlapping(start, segments.active.base_offset)
    floor = max(base for base in segment_bases(log) if base <= start)
    assert [one.base_offset for one in below] == [base for base in (0, 3, 6) if base >= floor]
