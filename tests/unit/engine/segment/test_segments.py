"""The ordered map of segments: nearest matches, ranges, and snapshots that never change."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import LogConfig
from engine.fs.names import log_name
from engine.fs.posix import PosixFileSystem
from engine.segment.segment import Segment
from engine.segment.segments import Segments
from engine.types import INT32_MAX
from tests.support.kafka import kafka
from tests.support.segments import Shelf, filled


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def bases(segments: tuple[Segment, ...]) -> list[int]:
    return [segment.base_offset for segment in segments]


@kafka("LogSegmentsTest.testBasicOperations")
def test_segments_come_and_go_by_base_offset(shelf: Shelf) -> None:
    """Add, replace, look up, remove, clear."""
    segments = Segments()
    assert len(segments) == 0
    first, second = shelf.segment(0), shelf.segment(10)
    segments.add(second)
    segments.add(first)
    assert list(segments) == [first, second]
    assert segments.get(0) is first
    assert segments.get(5) is None
    assert 10 in segments
    assert 5 not in segments
    other = shelf.segment(0, is_new=False)
    segments.add(other)
    assert segments.first is other
    segments.remove(0)
    segments.remove(0)
    assert bases(segments.snapshot.segments) == [10]
    segments.clear()
    assert len(segments) == 0


@kafka("LogSegmentsTest.testSegmentAccess")
def test_the_ends_and_the_sealed_ones_are_known(shelf: Shelf) -> None:
    """First and active, and the offsets of all."""
    segments = Segments(shelf.segment(base) for base in (5, 0, 20))
    assert segments.base_offsets == (0, 5, 20)
    assert segments.first_base_offset == segments.first.base_offset == 0
    assert segments.active.base_offset == 20


@kafka("LogSegmentsTest.testClosestMatchOperations", "LogSegmentsTest.testHigherSegments")
@given(st.sets(st.integers(0, 30), min_size=1, max_size=6), st.integers(-1, 32), st.integers(0, 32))
def test_nearest_matches_agree_with_a_list(present: set[int], target: int, end: int) -> None:
    """Floor, lower, higher, ceiling and ranges are those of the sorted base offsets."""
    shelf = Shelf()
    segments = Segments(shelf.segment(base) for base in present)
    ordered = sorted(present)

    def base(segment: Segment | None) -> int | None:
        return None if segment is None else segment.base_offset

    def last(below: list[int]) -> int | None:
        return below[-1] if below else None

    assert base(segments.floor(target)) == last([b for b in ordered if b <= target])
    above = [b for b in ordered if b > target]
    assert base(segments.higher(target)) == (above[0] if above else None)
    assert bases(segments.above(target)) == above
    reaching = [b for b in ordered if b >= target]
    assert base(segments.ceiling(target)) == (reaching[0] if reaching else None)
    floor = last([b for b in ordered if b <= target])
    start = ordered[0] if floor is None else floor
    expected = [b for b in ordered if start <= b < end]
    assert bases(segments.overlapping(target, end)) == expected


def test_a_reader_keeps_the_map_it_took(shelf: Shelf) -> None:
    """A snapshot is not changed by what happens afterwards."""
    segments = Segments([shelf.segment(0)])
    before = segments.snapshot
    segments.add(shelf.segment(10))
    segments.remove(0)
    assert bases(before.segments) == list(before.base_offsets) == [0]
    assert before.floor_index(7) == 0
    assert before.floor_index(-1) == -1


def test_replacing_is_one_step_for_readers(shelf: Shelf) -> None:
    """Old segments go and new ones come in one snapshot."""
    old = [shelf.segment(0), shelf.segment(10)]
    segments = Segments([*old, shelf.segment(20)])
    new = shelf.segment(0, is_new=False)
    segments.replace([new], old)
    assert list(segments) == [new, segments.active]
    assert segments.base_offsets == (0, 20)


def test_the_size_is_that_of_all_log_files(shelf: Shelf) -> None:
    """Bytes are summed over segments."""
    segments = Segments([shelf.segment(0), shelf.segment(5)])
    assert segments.size_bytes == 0
    filled(segments.first, range(3))
    filled(segments.active, [5])
    assert segments.size_bytes == sum(segment.size_bytes for segment in segments) > 0


@kafka("LogSegmentsTest.testSizeForLargeLogs")
def test_a_log_may_be_larger_than_a_segment_can_be(tmp_path: Path) -> None:
    """Two segments of the greatest size are a log of twice that."""
    fs = PosixFileSystem()
    for base in (0, 5):
        with (tmp_path / log_name(base)).open("wb") as file:
            file.truncate(INT32_MAX)
    segments = Segments(Segment(fs, tmp_path, base, LogConfig(), now_ms=0) for base in (0, 5))
    assert segments.size_bytes == 2 * INT32_MAX > INT32_MAX
    for segment in segments:
        segment.close_handles()


def test_the_check_finds_what_cannot_be(shelf: Shelf) -> None:
    """No segment at all, and contents that reach into the next segment, are refused."""
    with pytest.raises(AssertionError, match="active segment"):
        Segments().check_invariants()
    segments = Segments([shelf.segment(0), shelf.segment(3)])
    segments.check_invariants()
    filled(segments.first, range(5))
    with pytest.raises(AssertionError):
        segments.check_invariants()
    assert all(one < two for one, two in pairwise(segments.base_offsets))
