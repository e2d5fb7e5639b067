"""Recovery of one segment: the log file is the truth, everything else is rebuilt from it."""

import itertools
import struct
from typing import Any

import pytest

from engine.config import LogConfig
from engine.errors import SegmentOverflow
from engine.records.batch import stamp_crc
from engine.records.control import ControlType, build_end_marker
from engine.records.scan import Tail
from engine.segment.file_records import MOST_HEADERS_AT_ONCE, NotCached
from engine.segment.recovery import SCAN_CHUNK_BYTES, recover_segment
from engine.segment.segment import Segment
from engine.state.epochs import LeaderEpochCache
from engine.types import INT32_MAX, AbortedTransaction, EpochOffset, TimestampOffset
from tests.support.kafka import kafka
from tests.support.legacy import legacy_message
from tests.support.logs import DIRECTORY
from tests.support.segments import (
    Shelf,
    append,
    batch_at,
    filled,
    headers_of,
    offsets_of,
    reindex,
    roll_params,
    truncate,
)
from tests.support.time import START_MS


def recovered(shelf: Shelf, segment: Segment) -> tuple[Tail, int]:
    result = recover_segment(segment, shelf.producers(), None)
    assert result.scanned_bytes == segment.size_bytes
    return result.tail, result.truncated_bytes


def test_an_intact_segment_keeps_every_byte() -> None:
    """Nothing is cut, the tail is clean, and the next offset is known."""
    shelf = Shelf()
    segment = shelf.segment(5)
    filled(segment, range(5, 30))
    result = recover_segment(segment, shelf.producers(), None)
    assert (result.tail, result.truncated_bytes, result.reason) == (Tail.CLEAN, 0, None)
    assert result.next_offset == 30
    assert offsets_of(segment) == list(range(5, 30))


@kafka(
    "LogSegmentTest.testRecoveryFixesCorruptIndex",
    "LogSegmentTest.testRecoveryFixesCorruptTimeIndex",
)
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_overwritten_indexes_are_rebuilt(kind: str) -> None:
    """Nonsense in an index is replaced, and every offset is found again."""
    shelf = Shelf()
    segment = shelf.segment()
    positions = filled(segment, range(50))
    segment.close()
    index = segment.records.path.with_suffix(kind)
    size = shelf.disk.size_bytes(index)
    shelf.disk.remove(index)
    with shelf.disk.open(index, create=True) as file:
        file.append(bytes(range(7, 7 + size)))
    again = shelf.segment(is_new=False)
    recover_segment(again, shelf.producers(), None)
    for offset, position in enumerate(positions):
        found = again.locate(offset)
        assert found is not None
        assert found.position == position
    assert again.maximum == TimestampOffset(START_MS + 49, 49)


def test_recovery_makes_the_entries_that_appending_made() -> None:
    """Both indexes are as after the appends, but for where a walk over the file is coarser."""
    shelf = Shelf()
    segment = shelf.segment()
    positions = filled(segment, range(50))
    segment.indexes.reset()
    recover_segment(segment, shelf.producers(), None)
    by_position = dict(zip(positions, range(50), strict=True))
    entries = list(segment.indexes.offset.entries())
    assert entries
    assert all(by_position[entry.position] == entry.offset for entry in entries)
    assert segment.indexes.time.last_entry == TimestampOffset(START_MS + 49, 49)
    assert segment.maximum == TimestampOffset(START_MS + 49, 49)


@pytest.mark.parametrize("missing", [1, 5, 17, 60, 61, 70])
def test_an_unfinished_batch_is_a_torn_tail(missing: int) -> None:
    """However much of the last batch is there, it is cut and not called damage."""
    shelf = Shelf()
    segment = shelf.segment()
    positions = filled(segment, range(4))
    end = segment.size_bytes
    truncate(segment, 3)
    torn = bytes(batch_at(3))[: end - positions[3] - missing]
    segment.records.file.append(torn)
    assert recovered(shelf, segment) == (Tail.TORN, len(torn))
    assert offsets_of(segment) == [0, 1, 2]


@pytest.mark.parametrize("zeros", [1, 16, 17, 5_000, SCAN_CHUNK_BYTES + 100])
def test_zeros_are_a_torn_tail(zeros: int) -> None:
    """A preallocated or never written end is cut and not called damage."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(4))
    segment.records.file.append(bytes(zeros))
    assert recovered(shelf, segment) == (Tail.TORN, zeros)
    assert offsets_of(segment) == [0, 1, 2, 3]


@kafka("LogSegmentTest.testRecoveryWithCorruptMessage")
def test_a_changed_byte_is_damage_and_everything_from_there_goes() -> None:
    """Exactly the batches before the damaged one survive."""
    for victim in range(6):
        shelf = Shelf()
        segment = shelf.segment()
        positions = filled(segment, range(6))
        segment.close()
        path = segment.records.path
        content = bytearray(shelf.disk.read_bytes(path))
        content[positions[victim] + 65] ^= 0x10
        shelf.disk.remove(path)
        with shelf.disk.open(path, create=True) as file:
            file.append(content)
        again = shelf.segment(is_new=False)
        tail, cut = recovered(shelf, again)
        assert (tail, cut) == (Tail.DAMAGED, len(content) - positions[victim])
        assert offsets_of(again) == list(range(victim))


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 100, b"\0" * 100 + b"\1", bytes(8) + struct.pack(">iiB", 50, 0, 9) + bytes(60)],
    ids=["ones", "zeros with one byte", "unknown magic"],
)
def test_complete_nonsense_is_damage(garbage: bytes) -> None:
    """Bytes that can be framed and are not a batch are reported as damage, with a reason."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(3))
    segment.records.file.append(garbage)
    result = recover_segment(segment, shelf.producers(), None)
    assert result.tail is Tail.DAMAGED
    assert result.reason
    assert offsets_of(segment) == [0, 1, 2]


def test_offsets_that_go_back_are_damage() -> None:
    """A batch of another place in the log, intact as it is, does not belong here."""
    shelf = Shelf()
    segment = shelf.segment(10)
    filled(segment, [10, 11])
    segment.records.file.append(batch_at(11))
    assert recovered(shelf, segment) == (Tail.DAMAGED, len(batch_at(11)))
    below = shelf.segment(50)
    below.records.file.append(batch_at(49))
    assert recovered(shelf, below)[0] is Tail.DAMAGED


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_kept(magic: int) -> None:
    """An intact message of magic 0 or 1 is content like any other."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(3))
    segment.records.file.append(legacy_message(3, magic=magic))
    assert recovered(shelf, segment) == (Tail.CLEAN, 0)
    assert offsets_of(segment) == [0, 1, 2, 3]
    assert segment.read_next_offset() == 4


def test_torn_bytes_that_look_like_an_old_format_are_damage() -> None:
    """Without the old format's checksum they are not a message, whatever magic they declare."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(3))
    segment.records.file.append(legacy_message(3, magic=0)[:-1] + b"?")
    assert recovered(shelf, segment)[0] is Tail.DAMAGED
    assert offsets_of(segment) == [0, 1, 2]


@kafka("LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow")
def test_offsets_too_far_away_stop_recovery() -> None:
    """A segment to be split is left as it is."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, [0])
    segment.records.file.append(batch_at(INT32_MAX + 1))
    size = segment.size_bytes
    with pytest.raises(SegmentOverflow):
        recover_segment(segment, shelf.producers(), None)
    assert segment.size_bytes == size


def test_a_batch_larger_than_the_scan_reads_at_once_is_whole() -> None:
    """Batches that cross or exceed the piece that is read are checked like any other."""
    shelf = Shelf()
    segment = shelf.segment()
    large = batch_at(1, b"x" * (SCAN_CHUNK_BYTES + 5_000))
    halves = [batch_at(2 + i, b"y" * (SCAN_CHUNK_BYTES // 2)) for i in range(3)]
    append(segment, batch_at(0), large, *halves)
    assert recovered(shelf, segment) == (Tail.CLEAN, 0)
    assert offsets_of(segment) == [0, 1, 2, 3, 4]
    begins_large = shelf.segment(1)
    append(begins_large, large)
    assert recovered(shelf, begins_large) == (Tail.CLEAN, 0)


def test_the_disk_reads_on_while_a_piece_is_checked() -> None:
    """Every piece but the last is followed by the wish for the next one."""
    shelf = Shelf()
    segment = shelf.segment()
    append(segment, *(batch_at(i, b"y" * (SCAN_CHUNK_BYTES // 2)) for i in range(4)))
    asked: list[str] = []
    shelf.disk.meanwhile = lambda operation: asked.append(operation.name)
    assert recovered(shelf, segment) == (Tail.CLEAN, 0)
    reads = [name for name in asked if name in {"read", "prefetch"}]
    assert reads == [*["read", "prefetch"] * (reads.count("read") - 1), "read"]
    assert reads.count("read") > 1


@kafka("LogSegmentTest.testRecoveryRebuildsEpochCache")
def test_epochs_are_taken_from_the_batches() -> None:
    """Each newer epoch is noted where it begins."""
    shelf = Shelf()
    segment = shelf.segment()
    for offset, epoch in enumerate([0, 0, 1, 1, 0, 4]):
        batch = batch_at(offset)
        struct.pack_into(">i", batch, 12, epoch)
        append(segment, batch)
    epochs = LeaderEpochCache(shelf.disk, DIRECTORY)
    recover_segment(segment, shelf.producers(), epochs)
    assert epochs.entries == (EpochOffset(0, 0), EpochOffset(1, 2), EpochOffset(4, 5))


@kafka("LogSegmentTest.testRecoverTransactionIndex")
def test_aborted_transactions_are_found_again() -> None:
    """The transaction index is rebuilt from markers."""
    shelf = Shelf()
    segment = shelf.segment(100)
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    append(
        segment,
        batch_at(100, b"a", base_sequence=0, **options),
        batch_at(101, b"plain"),
        batch_at(102, b"b", base_sequence=1, **options),
    )
    marker = build_end_marker(
        ControlType.ABORT,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=START_MS,
        base_offset=103,
    )
    append(segment, marker)
    producers = shelf.producers()
    recover_segment(segment, producers, None)
    found = segment.indexes.transaction.collect(0, 200).aborted
    assert found == [AbortedTransaction(7, 100, 103, 104)]
    assert producers.map_end_offset == 104
    assert len(headers_of(segment)) == 4


def test_what_lies_above_goes_before_the_cut() -> None:
    """The caller may remove later segments while the bad tail is still there to find again."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(3))
    segment.records.file.append(b"torn")
    sizes: list[int] = []
    size = segment.size_bytes
    recover_segment(
        segment,
        shelf.producers(),
        None,
        before_cut=lambda: sizes.append(segment.size_bytes),
    )
    assert sizes == [size]
    recover_segment(segment, shelf.producers(), None, before_cut=lambda: sizes.append(-1))
    assert sizes == [size]


def test_a_marker_that_says_nothing_is_damage() -> None:
    """An intact control batch that cannot be parsed ends the scan; nothing of it stays.

    Its index entry stayed, if one was due: it pointed past the end, and the start crashed.
    """
    shelf = Shelf()
    segment = shelf.segment()
    append(segment, batch_at(0, bytes(segment.index_interval_bytes)))
    marker = batch_at(1, b"no marker", producer_id=7, producer_epoch=0, base_sequence=0)
    struct.pack_into(">i", marker, 12, 5)
    marker[22] |= 0x30
    stamp_crc(marker, 0, len(marker))
    append(segment, marker)
    producers, epochs = shelf.producers(), LeaderEpochCache(shelf.disk, DIRECTORY)
    result = recover_segment(segment, producers, epochs)
    assert (result.tail, result.truncated_bytes) == (Tail.DAMAGED, len(marker))
    assert offsets_of(segment) == [0]
    assert list(segment.indexes.offset.entries()) == []
    assert segment.indexes.time.last_entry == TimestampOffset(START_MS, 0)
    assert epochs.entries == (EpochOffset(0, 0),)
    assert (producers.map_end_offset, len(producers)) == (1, 0)


@pytest.mark.parametrize(("offsets", "following"), [((0, 1 << 33, 2), 50), ((0, 1, 1 << 33), 50)])
def test_a_far_offset_that_is_disproved_is_damage(offsets: tuple[int, ...], following: int) -> None:
    """Disproved by the next batch, or by the next segment: a split could not repair it.

    A start treated a flipped bit of an offset as an overflowed segment, and crashed in the split.
    """
    shelf = Shelf()
    with shelf.disk.open(DIRECTORY / f"{0:020d}.log", create=True) as file:
        for offset in offsets:
            file.append(batch_at(offset))
    segment = shelf.segment(is_new=False)
    result = recover_segment(segment, shelf.producers(), None, following=following)
    assert result.tail is Tail.DAMAGED
    assert f"offset {1 << 33} is impossible" in str(result.reason)
    assert offsets_of(segment) == [*itertools.takewhile(lambda one: one < 1 << 33, offsets)]


@pytest.mark.parametrize("index_bytes", [12, 24, 40, 120])
def test_recovery_leaves_a_full_index_as_it_is(index_bytes: int) -> None:
    """One append made one entry; recovery would make one for each batch and has no room for them.

    Batches after the last entry are still found, by offset and by time.
    """
    shelf = Shelf(config=LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=0))
    segment = shelf.segment()
    batches = [batch_at(offset) for offset in range(60)]
    segment.append(b"".join(batches), 59, START_MS + 59, 59)
    segment.close_handles()
    again = shelf.segment(is_new=False)
    assert recovered(shelf, again) == (Tail.CLEAN, 0)
    assert again.indexes.is_full
    for offset in range(60):
        found = again.locate(offset)
        assert found is not None
        assert found.base_offset == offset
    assert again.maximum == again.indexes.time.last_entry == TimestampOffset(START_MS + 59, 59)
    assert again.should_roll(roll_params(again, max_offset=60)), "an append goes elsewhere"


def test_rebuilt_indexes_stop_when_they_are_full() -> None:
    """A look-up that finds a wrong index rebuilds it with the present index size."""
    shelf = Shelf(config=LogConfig(segment_index_bytes=48, index_interval_bytes=0))
    segment = shelf.segment()
    segment.append(b"".join(batch_at(offset) for offset in range(60)), 59, START_MS + 59, 59)
    reindex(segment, is_active=False)
    assert segment.indexes.time.count == 4, "the last slot is for the entry that seals a segment"
    assert segment.indexes.time.last_entry == TimestampOffset(START_MS + 59, 59)
    assert segment.locate(59) is not None


def test_a_long_way_to_a_batch_is_not_walked_on_the_event_loop() -> None:
    """After a full index a look-up reads headers, however many: a worker thread does that."""
    shelf = Shelf(config=LogConfig(segment_index_bytes=12, index_interval_bytes=0))
    segment = shelf.segment()
    count = MOST_HEADERS_AT_ONCE + 2
    segment.append(b"".join(batch_at(offset) for offset in range(count)), count - 1, START_MS, 0)
    assert segment.indexes.offset.stays_open()
    near = segment.locate(MOST_HEADERS_AT_ONCE - 1, cached_only=True)
    assert near is not None
    with pytest.raises(NotCached):
        segment.locate(count - 1, cached_only=True)
    found = segment.locate(count - 1)
    assert found is not None
    assert found.base_offset == count - 1
