"""The file of batches and its lazily opened indexes."""

import struct
from collections.abc import Callable

import pytest

from engine.errors import CorruptIndex, StoredDataCorrupt
from engine.segment.file_records import FileRecords
from engine.segment.segment import Segment
from tests.support.kafka import kafka
from tests.support.logs import DIRECTORY
from tests.support.segments import Shelf, append, batch_at, filled


def records_with(*batches: bytes | bytearray) -> FileRecords:
    shelf = Shelf()
    records = FileRecords(shelf.disk.open(DIRECTORY / "some.log", create=True))
    for batch in batches:
        records.append(batch)
    return records


@kafka("FileRecordsTest.testIteratorWithLimits")
def test_headers_are_walked_between_two_boundaries() -> None:
    """From one boundary to another, independent of the other bytes."""
    batches = [batch_at(offset) for offset in range(5)]
    records = records_with(*batches)
    size = len(batches[0])
    walked = [header.base_offset for _, header in records.headers(size, 4 * size)]
    assert walked == [1, 2, 3]
    assert list(records.headers(size, size)) == []


def test_a_frame_that_does_not_fit_is_damage() -> None:
    """An incomplete batch between boundaries is an error with its position."""
    records = records_with(batch_at(0), batch_at(1)[:-1])
    with pytest.raises(StoredDataCorrupt) as damage:
        list(records.headers(0, records.size_bytes))
    assert damage.value.facts()["position"] == len(batch_at(0))


def test_a_frame_that_is_none_is_damage() -> None:
    """A header that cannot be is reported with file and position."""
    records = records_with(batch_at(0), bytes(100))
    with pytest.raises(StoredDataCorrupt, match=r"some\.log") as damage:
        list(records.headers(0, records.size_bytes))
    assert damage.value.facts()["position"] == len(batch_at(0))


def test_batches_are_intact_or_reported() -> None:
    """Each batch comes with its bytes; one with a wrong checksum is named by its offset."""
    good, bad = batch_at(0), batch_at(1)
    bad[-1] ^= 1
    records = records_with(good, bad)
    batches = records.batches(0, records.size_bytes)
    assert bytes(next(batches)[1].buffer) == good
    with pytest.raises(StoredDataCorrupt) as damage:
        next(batches)
    assert damage.value.facts()["offset"] == 1


@kafka("FileRecordsTest.testTruncate")
def test_cutting_takes_the_file_back() -> None:
    """The earlier batches stay; a size beyond the end is refused."""
    records = records_with(batch_at(0), batch_at(1))
    records.truncate(len(batch_at(0)))
    assert [header.base_offset for _, header in records.headers(0, records.size_bytes)] == [0]
    with pytest.raises(ValueError, match="cannot cut"):
        records.truncate(10_000)


def test_indexes_are_made_when_they_are_needed() -> None:
    """An unused segment has a log file and nothing else, until it is used."""
    shelf = Shelf()
    segment = shelf.segment()
    assert shelf.names == ["00000000000000000000.log"]
    segment.locate(0)
    assert shelf.names == ["00000000000000000000.index", "00000000000000000000.log"]
    assert segment.indexes.time.count == 0
    assert "00000000000000000000.timeindex" in shelf.names
    segment.indexes.transaction.collect(0, 1)
    assert "00000000000000000000.txnindex" not in shelf.names


def test_an_index_longer_than_its_log_is_none_of_its() -> None:
    """An entry beyond the end of the log file cannot be this segment's."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(50))
    segment.indexes.sanity_check(segment.size_bytes, has_transactions=False)
    with pytest.raises(CorruptIndex):
        segment.indexes.sanity_check(segment.size_bytes // 2, has_transactions=False)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_each_index_is_checked(suffix: str) -> None:
    """One that ends within an entry is none."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, range(5))
    segment.close()
    shelf.disk.begin_with({DIRECTORY / f"00000000000000000000.{suffix}": bytes(13)})
    segment = shelf.segment(is_new=False)
    with pytest.raises(CorruptIndex):
        segment.indexes.sanity_check(segment.size_bytes, has_transactions=False)


def test_markers_of_aborted_transactions_are_checked_with_the_other_indexes() -> None:
    """If there are any: one before the segment belongs to another one."""
    shelf = Shelf()
    segment = shelf.segment(base_offset=10)
    append(segment, batch_at(10))
    before = struct.pack(">hqqqq", 0, 7, 1, 5, 1)
    shelf.disk.begin_with({segment.indexes.transaction_path: before})
    segment.indexes.sanity_check(segment.size_bytes, has_transactions=False)
    with pytest.raises(CorruptIndex, match="has marker 5 before its base offset"):
        segment.indexes.sanity_check(segment.size_bytes, has_transactions=True)


def test_letting_go_writes_nothing() -> None:
    """Handles are closed without trimming, because the directory may be offline."""
    shelf = Shelf()
    segment = shelf.segment()
    append(segment, batch_at(0))
    shelf.disk.sync_everything()
    before = len(shelf.disk.changes)
    segment.close_handles()
    assert len(shelf.disk.changes) == before


@pytest.mark.parametrize("end", [Segment.close_handles, Segment.remove_files])
def test_no_index_is_opened_or_made_once_its_file_may_be_gone(
    end: Callable[[Segment], None],
) -> None:
    """A slow reader left a file, or took the data directory offline if that was removed."""
    shelf = Shelf()
    segment = shelf.segment()
    filled(segment, [0])
    end(segment)
    for look in (
        lambda: segment.indexes.offset,
        lambda: segment.indexes.time,
        lambda: segment.indexes.transaction,
    ):
        with pytest.raises(ValueError, match="closed"):
            look()
    assert not [name for name in shelf.names if "index" in name]
