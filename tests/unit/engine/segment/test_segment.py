"""One segment: appended batches are found by offset, by position, by time."""

import errno
from itertools import takewhile
from pathlib import Path

import pytest

from engine.config import LogConfig
from engine.errors import OffsetsOutOfOrder, SegmentOverflow, StoredDataCorrupt
from engine.fs.posix import PosixFileSystem
from engine.segment.file_records import BatchPosition, NotCached
from engine.segment.index_checks import floor_by_time
from engine.segment.segment import Segment
from engine.types import INT32_MAX, OffsetPosition, TimestampOffset
from tests.support.kafka import kafka
from tests.support.logs import DIRECTORY, with_config
from tests.support.segments import Shelf, append, batch_at, filled, headers_of, offsets_of
from tests.support.time import START_MS


@kafka("FileLogInputStreamTest.testSimpleBatchIteration")
def test_batches_are_found_as_they_were_appended() -> None:
    """Headers come back in order with offsets and sizes."""
    segment = Shelf().segment(100)
    batches = [batch_at(100, b"a", b"b"), batch_at(102), batch_at(110, b"c")]
    positions = append(segment, *batches)
    assert positions == [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert offsets_of(segment) == [100, 102, 110]
    assert [header.last_offset for header in headers_of(segment)] == [101, 102, 110]
    assert segment.size_bytes == sum(map(len, batches))
    assert bytes(segment.read(0, segment.size_bytes)[0]) == b"".join(batches)


@kafka("LogSegmentTest.testAppendForLogSegmentOffsetOverflowException")
@pytest.mark.parametrize(
    ("base_offset", "largest_offset"),
    [(100, 99), (0, INT32_MAX + 1), (1, INT32_MAX + 2), (INT32_MAX + 5, 7)],
)
def test_offsets_that_cannot_be_expressed_are_refused(
    base_offset: int, largest_offset: int
) -> None:
    """Relative offsets have 31 bits."""
    segment = Shelf().segment(base_offset)
    with pytest.raises(SegmentOverflow) as refusal:
        segment.append(batch_at(largest_offset), largest_offset, START_MS, largest_offset)
    assert refusal.value.facts()["offset"] == largest_offset
    assert segment.size_bytes == 0


def test_the_largest_relative_offset_is_accepted() -> None:
    """The last offset that 31 bits can express may be appended."""
    segment = Shelf().segment(7)
    filled(segment, [7 + INT32_MAX])
    assert segment.read_next_offset() == 8 + INT32_MAX


@kafka("LogSegmentTest.testReadOnEmptySegment")
def test_an_empty_segment_holds_nothing() -> None:
    """Nothing is located and the next offset is the base."""
    segment = Shelf().segment(40)
    assert segment.locate(40) is None
    assert segment.read_next_offset() == 40
    assert segment.maximum == TimestampOffset(-1, -1)


@kafka("LogSegmentTest.testReadBeforeFirstOffset")
def test_before_the_first_offset_is_the_first_batch() -> None:
    """An offset below answers with the first batch."""
    segment = Shelf().segment(40)
    filled(segment, [50, 51])
    assert segment.locate(41) == segment.locate(50) == BatchPosition(50, 50, 0, len(batch_at(50)))


@kafka("UnifiedLogTest.testCompressedMessages")
def test_an_offset_inside_a_batch_finds_the_batch() -> None:
    """The first batch whose last offset reaches the target."""
    segment = Shelf().segment()
    append(segment, batch_at(0, b"a", b"b", b"c"), batch_at(3, b"d"))
    for offset in (0, 1, 2):
        found = segment.locate(offset)
        assert found is not None
        assert found.position == 0


def test_looking_up_uses_the_index_and_agrees_with_a_walk() -> None:
    """With entries every few batches each offset is found where a walk finds it."""
    segment = Shelf().segment(10)
    positions = filled(segment, range(10, 400, 2))
    assert segment.indexes.offset.count > 10
    for index, offset in enumerate(range(10, 400, 2)):
        found = segment.locate(offset)
        assert found is not None
        assert (found.base_offset, found.position) == (offset, positions[index])
        assert segment.locate(offset - 1) == found


def test_an_end_older_than_the_index_hides_later_batches() -> None:
    """A reader with a bound older than the newest entry still finds batches below it."""
    segment = Shelf().segment()
    positions = filled(segment, range(100))
    assert segment.indexes.offset.last_entry.offset > 50
    end = positions[50]
    assert segment.locate(50, end) is None
    assert segment.locate(99, end) is None
    found = segment.locate(49, end)
    assert found is not None
    assert found.end == end
    assert segment.locate(0, 0) is None


def test_batches_end_where_the_budget_does() -> None:
    """The end is that of the last batch that fits, the offset that of the one after it."""
    segment = Shelf().segment()
    positions = filled(segment, range(100))
    first = segment.locate(5)
    assert first is not None
    size = segment.size_bytes
    assert segment.end_of_batches(first, positions[9], size) == OffsetPosition(9, positions[9])
    assert segment.end_of_batches(first, positions[9] - 1, size) == OffsetPosition(8, positions[8])
    assert segment.end_of_batches(first, size, size) == OffsetPosition(100, size)
    assert segment.end_of_batches(first, size + 1, size) == OffsetPosition(100, size)
    assert segment.end_of_batches(first, first.end - 1, size) == OffsetPosition(6, first.end)


def test_index_entries_are_sparse_and_point_at_batches() -> None:
    """There is an entry after each interval, with the batch's last offset and position."""
    shelf = Shelf(with_config(index_interval_bytes=200))
    segment = shelf.segment(20)
    positions = append(segment, *(batch_at(20 + 2 * i, b"x", b"y") for i in range(60)))
    by_position = dict(zip(positions, headers_of(segment), strict=True))
    entries = list(segment.indexes.offset.entries())
    assert entries
    previous = 0
    for entry in entries:
        assert by_position[entry.position].last_offset == entry.offset
        assert entry.position - previous > 200
        previous = entry.position


def test_the_first_of_equal_times_is_the_maximum() -> None:
    """A later batch with the same largest time does not replace the first (5.2, step 2g)."""
    segment = Shelf().segment()
    append(
        segment,
        batch_at(0, b"a", timestamp=50),
        batch_at(1, b"b", b"c", timestamp=90),
        batch_at(3, b"d", timestamp=90),
        batch_at(4, b"e", timestamp=20),
    )
    assert segment.maximum == TimestampOffset(90, 2)
    assert segment.largest_timestamp == 90


def test_without_times_the_file_tells_its_age() -> None:
    """A segment whose records have no time is as old as its file (4.12)."""
    shelf = Shelf()
    segment = shelf.segment()
    append(segment, batch_at(0, timestamp=-1))
    shelf.disk.set_modified_ms(segment.records.path, 77)
    assert segment.largest_timestamp == segment.modified_ms == 77


def test_what_is_not_cached_is_not_waited_for() -> None:
    """A read that must not use the disk raises instead."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(5))
    assert segment.read(0, segment.size_bytes, cached_only=True)
    shelf.disk.is_cached = False
    for read in (
        lambda: segment.read(0, segment.size_bytes, cached_only=True),
        lambda: segment.locate(3, cached_only=True),
    ):
        with pytest.raises(NotCached):
            read()


def test_a_large_read_is_not_verified_by_a_caller_that_must_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the page cache, too: the checksums of many small batches take milliseconds."""
    segment = Shelf().segment()
    filled(segment, range(5))
    monkeypatch.setattr("engine.segment.segment.MAX_CACHED_READ_BYTES", segment.size_bytes - 1)
    with pytest.raises(NotCached):
        segment.read(0, segment.size_bytes, cached_only=True)
    assert len(segment.read(0, segment.size_bytes)[0]) == segment.size_bytes


def test_a_segment_is_at_hand_once_both_its_indexes_were_used() -> None:
    """A look-up by time opens one of the two, a look-up by offset the other."""
    segment = Shelf().segment()
    assert not segment.is_at_hand
    assert floor_by_time(segment, START_MS).timestamp == -1
    assert not segment.is_at_hand
    assert segment.locate(0) is None
    assert segment.is_at_hand


@pytest.mark.parametrize("kind", ["offset", "time"])
def test_an_index_without_room_is_noticed_before_the_write(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either of the two may find the disk full, and then no byte of the batch is in the file."""
    segment = Shelf().segment()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(getattr(segment.indexes, kind).wake(), "reserve", full)
    offsets = range(1_000)
    taken = list(takewhile(lambda offset: is_taken(segment, offset), offsets))
    assert 0 < len(taken) < len(offsets)
    assert offsets_of(segment) == taken


def is_taken(segment: Segment, offset: int) -> bool:
    """Append a record; return whether there was room."""
    try:
        filled(segment, [offset])
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", ["offset", "time"])
def test_an_append_that_an_index_refuses_leaves_file_and_indexes_as_they_were(kind: str) -> None:
    """The bytes of a refused batch stayed in the file, and the next start found them."""
    segment = Shelf().segment()
    large = batch_at(0, b"x" * (segment.index_interval_bytes + 1))
    append(segment, large)
    if kind == "offset":
        segment.indexes.offset.append(50, 0)
    else:
        segment.indexes.time.maybe_append(START_MS + 50, 50)
    before = (segment.size_bytes, segment.maximum, *counts_of(segment))
    with pytest.raises((OffsetsOutOfOrder, ValueError)):
        append(segment, batch_at(1))
    assert (segment.size_bytes, segment.maximum, *counts_of(segment)) == before
    assert offsets_of(segment) == [0]


def counts_of(segment: Segment) -> tuple[int, int]:
    """How many entries the sparse indexes have."""
    return segment.indexes.offset.count, segment.indexes.time.count


def test_a_file_that_became_shorter_is_reported() -> None:
    """Bytes that were there and are gone are damage, with file and position."""
    segment = Shelf().segment()
    filled(segment, range(3))
    size = segment.size_bytes
    with pytest.raises(StoredDataCorrupt) as damage:
        segment.read(0, size + 1)
    assert damage.value.facts()["position"] == size


def test_sealing_leaves_the_last_time_and_trims() -> None:
    """The time index ends with the maximum, and both indexes are as long as their entries."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(20))
    segment.seal()
    assert segment.indexes.time.last_entry == TimestampOffset(START_MS + 19, 19)
    for index in (segment.indexes.offset, segment.indexes.time):
        assert shelf.disk.size_bytes(index.path) == index.size_bytes
        assert index.is_full


def test_a_closed_segment_reopens_as_it_was() -> None:
    """Batches, entries and maximum are found again, without a scan of the file."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(30))
    entries = list(segment.indexes.offset.entries())
    segment.close()
    again = shelf.segment(is_new=False)
    assert list(again.indexes.offset.entries()) == entries
    again.load_maximum()
    assert again.maximum == TimestampOffset(START_MS + 29, 29)
    assert again.read_next_offset() == 30


def test_a_time_of_zero_is_a_time() -> None:
    """The epoch's first millisecond is found again after a start; no time is -1."""
    shelf = Shelf()
    segment = shelf.segment()
    append(segment, batch_at(0, timestamp=0))
    segment.close()
    again = shelf.segment(is_new=False)
    again.load_maximum()
    assert again.maximum == TimestampOffset(0, 0)
    assert again.largest_timestamp == 0


def test_closing_an_untouched_segment_opens_nothing() -> None:
    """An unused segment is closed without creating or mapping an index."""
    shelf = Shelf()
    shelf.segment().close()
    assert shelf.names == ["00000000000000000000.log"]


@kafka("LogSegmentTest.testChangeFileSuffixes")
def test_a_renamed_segment_is_read_and_indexed_on() -> None:
    """Only files that exist are renamed; later access finds them."""
    shelf = Shelf()
    segment = shelf.segment()
    segment.change_suffix(".swap")
    assert shelf.names == ["00000000000000000000.log.swap"]
    filled(segment, range(10))
    assert shelf.names[0].endswith(".index.swap")
    segment.change_suffix("")
    assert [name for name in shelf.names if name.endswith(".swap")] == []
    assert segment.locate(9) is not None
    assert segment.records.path == DIRECTORY / "00000000000000000000.log"
    assert segment.indexes.offset.path == segment.indexes.offset_path


@kafka("LogSegmentsTest.testUpdateDir")
def test_a_segment_follows_its_directory() -> None:
    """After a rename of the directory all paths are in the new one."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(10))
    target = DIRECTORY.with_name("moved-0")
    shelf.disk.rename(DIRECTORY, target)
    segment.move_to(target)
    assert segment.records.path.parent == segment.indexes.offset.path.parent == target
    segment.close()
    assert "00000000000000000000.timeindex" in shelf.disk.list_directory(target)


def test_removing_takes_every_file_and_may_be_repeated() -> None:
    """All files of the segment are removed; a second removal finds nothing and is not an error."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(10))
    segment.remove_files()
    segment.remove_files()
    assert shelf.names == []


def test_a_segment_says_which_it_is() -> None:
    """Its text names file and size, for log lines."""
    segment = Shelf().segment(3)
    assert repr(segment) == "Segment(/data/events-0/00000000000000000003.log, 0 bytes)"


@kafka("FileRecordsTest.testOpenOversizeFile")
def test_a_file_too_long_for_its_positions_is_no_segment(tmp_path: Path) -> None:
    """Positions have 31 bits: a longer file is refused and left alone."""
    path = tmp_path / "00000000000000000000.log"
    with path.open("wb") as file:
        file.truncate(INT32_MAX + 1)
    with pytest.raises(StoredDataCorrupt, match="31 bits"):
        Segment(PosixFileSystem(), tmp_path, 0, LogConfig(), now_ms=START_MS)
    assert path.stat().st_size == INT32_MAX + 1
