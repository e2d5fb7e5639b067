"""When a segment must not take the next append: size, time, full indexes, offsets too far away."""

import pytest

from engine.segment.segment import Segment
from engine.types import INT32_MAX
from tests.support.kafka import kafka
from tests.support.logs import with_config
from tests.support.segments import Shelf, append, batch_at, filled, roll_params
from tests.support.time import START_MS

HOUR_MS = 3_600_000


@pytest.fixture
def segment() -> Segment:
    segment = Shelf().segment(10)
    filled(segment, [10, 11])
    return segment


@kafka("UnifiedLogTest.testSizeBasedLogRoll")
def test_a_segment_may_be_filled_exactly(segment: Segment) -> None:
    """Only what would exceed segment.bytes rolls."""
    room = 1_000
    exact = roll_params(
        segment, max_segment_bytes=segment.size_bytes + room, size_bytes=room, max_offset=12
    )
    assert not segment.should_roll(exact)
    assert segment.should_roll(exact._replace(size_bytes=room + 1))


def test_record_time_rolls_strictly_after_the_span(segment: Segment) -> None:
    """The span counts from the first append's largest time; exactly the span is not over it."""
    at_span = roll_params(segment, max_segment_ms=HOUR_MS, max_timestamp=START_MS + 10 + HOUR_MS)
    assert not segment.should_roll(at_span)
    assert segment.should_roll(at_span._replace(max_timestamp=at_span.max_timestamp + 1))


@kafka("UnifiedLogTest.testTimeBasedLogRollDuringAppend")
def test_the_wall_clock_alone_never_rolls_dated_records(segment: Segment) -> None:
    """However late it is, record time decides."""
    params = roll_params(segment, max_segment_ms=HOUR_MS, now_ms=START_MS + 100 * HOUR_MS)
    assert not segment.should_roll(params)
    older = params._replace(max_timestamp=0)
    assert not segment.should_roll(older)


def test_undated_records_roll_by_the_wall_clock() -> None:
    """Without times the age of the segment counts, and a dated record later changes nothing."""
    segment = Shelf().segment()
    append(segment, batch_at(0, timestamp=-1))
    append(segment, batch_at(1, timestamp=START_MS + 500 * HOUR_MS))
    params = roll_params(segment, max_segment_ms=HOUR_MS, max_timestamp=START_MS + 600 * HOUR_MS)
    assert not segment.should_roll(params._replace(now_ms=START_MS + HOUR_MS))
    assert segment.should_roll(params._replace(now_ms=START_MS + HOUR_MS + 1))


def test_time_never_rolls_an_empty_segment() -> None:
    """An empty segment waits for its first record for ever."""
    segment = Shelf().segment()
    late = roll_params(segment, max_segment_ms=1, now_ms=START_MS + HOUR_MS, max_timestamp=2**60)
    assert not segment.should_roll(late)


@kafka("UnifiedLogTest.testTimeBasedLogRollJitter")
def test_jitter_makes_a_segment_roll_earlier() -> None:
    """It rolls at segment.ms less its own jitter, not before."""
    segment = Shelf().segment(jitter_ms=1_000)
    append(segment, batch_at(0, timestamp=START_MS))
    params = roll_params(segment, max_segment_ms=HOUR_MS)
    at_limit = params._replace(max_timestamp=START_MS + HOUR_MS - 1_000)
    assert not segment.should_roll(at_limit)
    assert segment.should_roll(at_limit._replace(max_timestamp=at_limit.max_timestamp + 1))


@kafka("LogSegmentTest.testGetFirstBatchTimestamp")
def test_the_first_time_is_found_again_after_a_restart() -> None:
    """A reopened segment takes its first batch's time."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(3))
    segment.close()
    again = shelf.segment(is_new=False)
    again.make_active()
    params = roll_params(again, max_segment_ms=HOUR_MS, max_timestamp=START_MS + HOUR_MS)
    assert not again.should_roll(params)
    assert again.should_roll(params._replace(max_timestamp=START_MS + HOUR_MS + 1))


def test_offsets_too_far_away_roll() -> None:
    """What 31 bits cannot express goes into a new segment, even from an empty one."""
    segment = Shelf().segment(10)
    assert not segment.should_roll(roll_params(segment, max_offset=10 + INT32_MAX))
    assert segment.should_roll(roll_params(segment, max_offset=11 + INT32_MAX))
    assert segment.should_roll(roll_params(segment, max_offset=9))


@pytest.mark.parametrize("index", ["offset", "time"])
def test_a_full_index_rolls(index: str) -> None:
    """A segment with a full sparse index takes no more batches, even if it is empty."""
    shelf = Shelf(with_config(segment_index_bytes=36, index_interval_bytes=0))
    segment = shelf.segment()
    assert not segment.should_roll(roll_params(segment))
    times = {"offset": START_MS, "time": None}
    offset = 0
    while not segment.indexes.is_full:
        append(segment, batch_at(offset, timestamp=times[index]))
        offset += 1
    assert getattr(segment.indexes, index).is_full
    assert segment.should_roll(roll_params(segment))
