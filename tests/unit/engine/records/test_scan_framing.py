"""Rows about batches one after another, in memory and in a file."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import LogConfig
from engine.errors import StoredDataCorrupt
from engine.records.batch import BatchView
from engine.records.builder import build_batch
from engine.records.header import HEADER_BYTES, parse_header
from engine.records.scan import Tail, iter_headers, scan_batches
from engine.segment.file_records import BatchPosition, FileRecords
from engine.segment.segment import RollParams, Segment
from engine.types import INT32_MAX, INT64_MAX, AppendOrigin
from tests.support.builders import World, new_batch, values_of
from tests.support.filesystem import ForgetfulDisk
from tests.support.kafka import kafka
from tests.support.logs import CONFIG

BATCHES = [
    bytes(values_of([b"one"], base_offset=0, producer_id=1, producer_epoch=2, base_sequence=3)),
    bytes(values_of([b"two", b"three"], base_offset=1, leader_epoch=7)),
    bytes(values_of([b"four"] * 5, base_offset=50, leader_epoch=9)),
]
FIRST, SECOND, THIRD = BATCHES
STARTS = [0, len(FIRST), len(FIRST) + len(SECOND)]
SIZE = len(b"".join(BATCHES))


@pytest.fixture
def records() -> Iterator[FileRecords]:
    """A file with three batches, at offsets 0, 1 to 2, and 50 to 54."""
    disk = ForgetfulDisk()
    disk.make_directory(Path("/data"))
    file = FileRecords(disk.open(Path("/data/batches"), create=True))
    for batch in BATCHES:
        file.append(batch)
    yield file
    file.close()


@kafka(
    "FileLogInputStreamTest.testWriteTo",
    "FileLogInputStreamTest.testSimpleBatchIteration",
    "FileLogInputStreamTest.testBatchIterationWithMultipleRecordsPerBatch",
)
def test_batches_come_one_after_another_and_can_be_copied(records: FileRecords) -> None:
    """Each is there with its offsets and its very bytes, and then there is none."""
    found = list(records.batches(0, records.size_bytes))
    assert [at for at, _ in found] == STARTS
    assert [bytes(view.buffer) for _, view in found] == BATCHES
    ranges = [(view.header.base_offset, view.header.last_offset) for _, view in found]
    assert ranges == [(0, 0), (1, 2), (50, 54)]
    assert list(records.batches(records.size_bytes, records.size_bytes)) == []


@kafka("FileLogInputStreamTest.testBatchIterationV2")
def test_successive_headers_have_their_own_producers_and_epochs(records: FileRecords) -> None:
    """Producer, sequence, leader epoch and count are those of each batch."""
    headers = [header for _, header in records.headers(0, records.size_bytes)]
    producers = [(h.producer_id, h.producer_epoch, h.base_sequence) for h in headers]
    assert producers == [(1, 2, 3), (-1, -1, -1), (-1, -1, -1)]
    assert [h.leader_epoch for h in headers] == [-1, 7, 9]
    assert [h.records_count for h in headers] == [1, 2, 5]


@kafka(
    "FileLogInputStreamTest.testBatchIterationIncompleteBatch",
    "FileRecordsTest.testIterationOverPartialAndTruncation",
    "ByteBufferLogInputStreamTest.iteratorIgnoresIncompleteEntries",
)
@pytest.mark.parametrize("length", [1, 11, 16, 17, HEADER_BYTES - 1, HEADER_BYTES, len(THIRD) - 1])
def test_a_partial_batch_at_the_end_is_not_seen(length: int) -> None:
    """An incomplete batch, or even header, hides nothing before it and is not an error."""
    data = FIRST + SECOND + THIRD[:length]
    assert [position for position, _ in iter_headers(data)] == STARTS[:2]
    scan = scan_batches(data)
    assert (scan.valid_bytes, scan.next_offset, scan.tail) == (STARTS[2], 3, Tail.TORN)


@kafka(
    "FileLogInputStreamTest.testNextBatchSelectionWithMaxedParams",
    "FileLogInputStreamTest.testNextBatchSelectionWithZeroedParams",
)
@pytest.mark.parametrize("bound", [0, SIZE, INT32_MAX, INT64_MAX])
def test_an_empty_range_yields_nothing_however_extreme(records: FileRecords, bound: int) -> None:
    """Start and end at one place, at 0 or at the greatest numbers there are: the walk just ends."""
    assert list(records.headers(bound, bound)) == []
    assert list(iter_headers(b"".join(BATCHES), bound, bound)) == []


@kafka("FileRecordsTest.testAppendProtectsFromOverflow")
def test_a_segment_rolls_before_its_file_passes_31_bits() -> None:
    """Bytes that would lead past 2^31-1 go into another segment."""
    disk = ForgetfulDisk()
    disk.make_directory(Path("/data"))
    segment = Segment(disk, Path("/data"), 0, CONFIG, now_ms=0, is_new=True)
    segment.append(FIRST, 0, 5, 0)
    room = INT32_MAX - segment.size_bytes

    def must_roll(size_bytes: int) -> bool:
        return segment.should_roll(RollParams(INT64_MAX, INT32_MAX, 5, 1, size_bytes, 0))

    assert not must_roll(room)
    assert must_roll(room + 1)


@kafka("FileRecordsTest.testSliceSizeLimitWithConcurrentWrite")
def test_a_walk_never_sees_what_is_appended_meanwhile(records: FileRecords) -> None:
    """While a writer appends, bytes up to an end taken before stay what they were."""
    before = b"".join(BATCHES)
    stop = threading.Event()

    def append() -> None:
        while not stop.is_set() and records.size_bytes < 1 << 20:
            records.append(THIRD)

    writer = threading.Thread(target=append)
    writer.start()
    try:
        for _ in range(200):
            assert bytes(records.read(0, SIZE)) == before
            assert len(list(records.headers(0, SIZE))) == 3
    finally:
        stop.set()
        writer.join()
    assert records.size_bytes > SIZE


@kafka("FileRecordsTest.testIterationDoesntChangePosition")
def test_reading_does_not_move_the_end(records: FileRecords) -> None:
    """After a walk and a search the next append follows the last one."""
    assert len(list(records.headers(0, SIZE))) == 3
    assert records.batch_at_or_after(2, 0, SIZE, next_offset=0) is not None
    assert records.append(FIRST) == SIZE
    assert records.size_bytes == SIZE + len(FIRST)


@kafka("LogSegmentTest.testReadFromGap", "FileRecordsTest.testSearch")
@pytest.mark.parametrize(
    ("offset", "found"),
    [(0, 0), (1, 1), (2, 1), (3, 2), (49, 2), (50, 2), (54, 2), (55, None)],
)
def test_the_search_finds_the_first_batch_that_reaches_the_offset(
    records: FileRecords, offset: int, found: int | None
) -> None:
    """For an offset in a gap it is the batch after it; for one after all there is none."""
    ends = [*STARTS[1:], SIZE]
    ranges = [(0, 0), (1, 2), (50, 54)]
    expected = None if found is None else BatchPosition(*ranges[found], STARTS[found], ends[found])
    for start in STARTS[: len(BATCHES) if found is None else found + 1]:
        assert records.batch_at_or_after(offset, start, SIZE, next_offset=0) == expected


@kafka("FileRecordsTest.testBytesLengthOfWriteTo")
@pytest.mark.parametrize(("position", "length"), [(0, 1), (5, 100), (STARTS[1], SIZE - STARTS[1])])
def test_a_read_is_exactly_what_was_asked_for(
    records: FileRecords, position: int, length: int
) -> None:
    """Exactly the requested bytes."""
    data = b"".join(BATCHES)[position : position + length]
    assert bytes(records.read(position, length)) == data


@kafka("FileRecordsTest.testOutOfRangeSlice")
def test_a_read_beyond_the_end_is_refused(records: FileRecords) -> None:
    """Bytes that are not there are damage and not a short answer."""
    with pytest.raises(StoredDataCorrupt):
        records.read(SIZE + 1, 1)
    with pytest.raises(StoredDataCorrupt):
        records.read(STARTS[2], len(THIRD) + 1)


@kafka(
    "LogSegmentTest.testCreateWithInitFileSizeAppendMessage",
    "FileRecordsTest.testPreallocateClearShutdown",
)
def test_a_preallocated_segment_is_trimmed_when_it_is_closed() -> None:
    """Until then the file has its full length; reopened it has its batches and no more."""
    disk = ForgetfulDisk()
    directory = Path("/data")
    disk.make_directory(directory)
    config = LogConfig(segment_bytes=4096, segment_index_bytes=1200, preallocate=True)
    segment = Segment(disk, directory, 0, config, now_ms=0, is_new=True)
    segment.append(FIRST, 0, 5, 0)
    path = segment.records.path
    assert (disk.size_bytes(path), segment.size_bytes) == (4096, len(FIRST))
    segment.close()
    assert disk.size_bytes(path) == len(FIRST)
    reopened = Segment(disk, directory, 0, config, now_ms=0)
    assert (reopened.size_bytes, reopened.read_next_offset()) == (len(FIRST), 1)


@kafka("FileRecordsTest.testPreallocateFalse")
def test_without_preallocation_a_file_has_its_batches_length() -> None:
    """A new segment's file is empty, and grows with each append."""
    disk = ForgetfulDisk()
    disk.make_directory(Path("/data"))
    segment = Segment(disk, Path("/data"), 0, CONFIG, now_ms=0, is_new=True)
    assert disk.size_bytes(segment.records.path) == 0
    segment.append(FIRST, 0, 5, 0)
    assert disk.size_bytes(segment.records.path) == len(FIRST)


@kafka("FileRecordsTest.testSearchForTimestamp")
@pytest.mark.parametrize(
    ("timestamp", "start", "found"),
    [
        (-5, 0, (10, 5, 0)),
        (10, 0, (10, 5, 0)),
        (11, 0, (20, 6, 0)),
        (20, 0, (20, 6, 0)),
        (21, 0, (40, 11, 1)),
        (10, 6, (20, 6, 0)),
        (10, 12, (30, 12, 1)),
        (40, 0, (40, 11, 1)),
        (41, 0, None),
    ],
)
def test_the_search_by_time_finds_a_record_with_its_epoch(
    timestamp: int, start: int, found: tuple[int, int, int] | None
) -> None:
    """The first record of that time or later, at or after the start, in offset order."""
    log = World().open_log(CONFIG)
    older = build_batch([(10, None, b"", []), (20, None, b"", [])], base_offset=5, leader_epoch=0)
    newer = build_batch([(40, None, b"", []), (30, None, b"", [])], base_offset=11, leader_epoch=1)
    for batch in (older, newer):
        log.append(batch, origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    log.delete_records(start)
    assert log.reader.offset_for_time(timestamp) == found


@kafka("LogValidatorTest.checkNonCompressed")
def test_a_batch_read_from_a_log_is_the_batch_that_was_appended() -> None:
    """Only base offset and leader epoch are the log's; all other bytes are the client's."""
    log = World().open_log(CONFIG)
    log.append(new_batch())
    sent = bytes(new_batch(3, producer_id=5, producer_epoch=0, base_sequence=0))
    log.append(sent)
    log.durability.commit()
    fetched = log.reader.read(1, max_bytes=1)
    assert fetched is not None
    stored = bytes(fetched.data)
    header = parse_header(stored)
    assert (header.base_offset, header.leader_epoch) == (1, 0)
    assert (stored[8:12], stored[16:]) == (sent[8:12], sent[16:])
    BatchView(stored).ensure_intact()
