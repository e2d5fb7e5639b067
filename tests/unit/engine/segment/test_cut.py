"""Taking a segment's end back: whole batches, and everything derived from them."""

import struct

import pytest

from engine.errors import CorruptIndex
from engine.segment.recovery import plan_cut
from engine.types import INT32_MAX, TimestampOffset
from tests.support.kafka import kafka
from tests.support.logs import with_config
from tests.support.segments import (
    Shelf,
    append,
    batch_at,
    filled,
    offsets_of,
    roll_params,
    truncate,
)
from tests.support.time import START_MS

HOUR_MS = 3_600_000


@kafka("LogSegmentTest.testTruncate")
def test_truncation_leaves_the_earlier_batches_every_time() -> None:
    """The second of two batches is cut, again and again."""
    segment = Shelf().segment(40)
    append(segment, batch_at(40, b"stays"))
    for _ in range(30):
        append(segment, batch_at(41, b"goes"), batch_at(42, b"goes too"))
        size = segment.size_bytes
        truncate(segment, 41)
        assert offsets_of(segment) == [40]
        assert segment.size_bytes < size


def test_a_batch_that_holds_the_offset_goes_whole() -> None:
    """Cutting inside a batch cuts from its first record (4.9, step 4)."""
    segment = Shelf().segment()
    append(segment, batch_at(0, b"a"), batch_at(1, b"b", b"c", b"d"), batch_at(4))
    truncate(segment, 2)
    assert offsets_of(segment) == [0]


@kafka("LogSegmentTest.shouldTruncateEvenIfOffsetPointsToAGapInTheLog")
def test_an_offset_in_a_gap_cuts_from_the_next_batch() -> None:
    """What follows a gap goes."""
    segment = Shelf().segment()
    filled(segment, [0, 1, 10, 11])
    truncate(segment, 5)
    assert offsets_of(segment) == [0, 1]
    assert segment.read_next_offset() == 2


def test_above_the_last_batch_nothing_is_cut() -> None:
    """No byte changes, and the indexes have room again."""
    segment = Shelf().segment()
    filled(segment, range(20))
    size = segment.size_bytes
    segment.seal()
    truncate(segment, 20)
    assert segment.size_bytes == size
    assert not segment.indexes.is_full


@kafka("LogSegmentTest.testTruncateEmptySegment")
def test_truncating_an_empty_segment_makes_it_new() -> None:
    """Index room and age come back; only offsets roll it then."""
    shelf = Shelf()
    segment = shelf.segment()
    segment.close()
    segment = shelf.segment(is_new=False)
    segment.seal()
    assert segment.should_roll(roll_params(segment)), "a sealed segment is full"
    later = START_MS + 10 * HOUR_MS
    truncate(segment, 0, now_ms=later)
    assert not segment.indexes.is_full
    params = roll_params(segment, max_segment_ms=HOUR_MS, now_ms=later + 2 * HOUR_MS)
    assert not segment.should_roll(params)
    assert segment.should_roll(params._replace(max_offset=INT32_MAX + 1))


@kafka("LogSegmentTest.testTruncateFull")
def test_an_emptied_segment_takes_the_same_offsets_again() -> None:
    """The age starts again and nothing of before is left."""
    segment = Shelf().segment()
    append(segment, batch_at(0, timestamp=-1), batch_at(1, timestamp=-1))
    later = START_MS + 5 * HOUR_MS
    truncate(segment, 0, now_ms=later)
    assert segment.size_bytes == 0
    assert segment.maximum == TimestampOffset(-1, -1)
    append(segment, batch_at(0, timestamp=-1))
    params = roll_params(segment, max_segment_ms=HOUR_MS)
    assert not segment.should_roll(params._replace(now_ms=later + HOUR_MS))
    assert segment.should_roll(params._replace(now_ms=later + HOUR_MS + 1))


@kafka("LogSegmentTest.testReloadLargestTimestampAndNextOffsetAfterTruncation")
def test_the_maximum_and_the_entries_are_those_of_what_is_left() -> None:
    """Largest time, next offset and indexes follow."""
    shelf = Shelf(with_config(index_interval_bytes=150))
    segment = shelf.segment()
    filled(segment, range(60))
    whole = list(segment.indexes.offset.entries())
    truncate(segment, 30)
    assert segment.maximum == TimestampOffset(START_MS + 29, 29)
    assert segment.read_next_offset() == 30
    left = list(segment.indexes.offset.entries())
    assert left == [entry for entry in whole if entry.offset < 30]
    assert all(entry.offset < 30 for entry in segment.indexes.time.entries())
    filled(segment, range(30, 60))
    assert offsets_of(segment) == list(range(60))


def test_the_maximum_is_found_between_entries() -> None:
    """A larger time without an index entry is found in the batches after the last entry."""
    segment = Shelf().segment()
    append(segment, batch_at(0, timestamp=90), batch_at(1, timestamp=50), batch_at(2, timestamp=99))
    truncate(segment, 2)
    assert segment.maximum == TimestampOffset(90, 0)


def test_of_equal_times_the_first_is_the_maximum() -> None:
    """As Kafka has it, and as an append would have left it."""
    segment = Shelf().segment()
    append(segment, batch_at(0, timestamp=90), batch_at(1, timestamp=90), batch_at(2, timestamp=99))
    truncate(segment, 2)
    assert segment.maximum == TimestampOffset(90, 0)


def test_an_entry_of_the_first_millisecond_is_one() -> None:
    """The time 0 is valid; only times below it mean that there is none."""
    shelf = Shelf()
    segment = shelf.segment()
    positions = append(segment, *(batch_at(offset, timestamp=0) for offset in range(10)))
    indexes = segment.indexes
    segment.close()
    shelf.disk.begin_with(
        {
            indexes.time_path: struct.pack(">qi", 0, 3),
            indexes.offset_path: struct.pack(">ii", 1, positions[1]),
        }
    )
    assert plan_cut(shelf.segment(is_new=False), 8).maximum == TimestampOffset(0, 3)


def test_an_index_entry_that_leads_past_the_cut_is_found_before_anything_is_cut() -> None:
    """The entry of offset 7 names the batch of offset 9, where a cut at 9 would begin."""
    shelf = Shelf()
    segment = shelf.segment()
    positions = filled(segment, range(10))
    path = segment.indexes.offset_path
    segment.close()
    shelf.disk.begin_with({path: struct.pack(">ii", 7, positions[9])})
    segment = shelf.segment(is_new=False)
    with pytest.raises(CorruptIndex, match=f"leads to byte {positions[9]}, past 9"):
        plan_cut(segment, 9)
    assert offsets_of(segment) == [*range(10)]


def test_a_time_that_its_batch_does_not_have_is_found_before_anything_is_cut() -> None:
    """The entry would become the segment's largest time, by which it rolls and expires."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(10))
    path = segment.indexes.time_path
    segment.close()
    shelf.disk.begin_with({path: struct.pack(">qi", START_MS + 500, 5)})
    segment = shelf.segment(is_new=False)
    with pytest.raises(CorruptIndex, match=f"names offset 5 for time {START_MS + 500}"):
        plan_cut(segment, 8)
    assert offsets_of(segment) == [*range(10)]


@pytest.mark.parametrize("wrong", [0, 8])
def test_the_entries_that_stay_lead_to_batches(wrong: int) -> None:
    """The last one before the cut, and the one from which times are read; later reads use them."""
    shelf = Shelf()
    segment = shelf.segment()
    positions = filled(segment, range(10))
    indexes = segment.indexes
    segment.close()
    entries = [(offset, positions[offset] + (offset == wrong)) for offset in (0, 8, 9)]
    shelf.disk.begin_with(
        {
            indexes.offset_path: b"".join(struct.pack(">ii", *entry) for entry in entries),
            indexes.time_path: b"",
        }
    )
    with pytest.raises(CorruptIndex):
        plan_cut(shelf.segment(is_new=False), 9)
