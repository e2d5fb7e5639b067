"""Walking batches: how far the bytes are good and why they end there."""

import pytest

from engine.errors import CorruptBatch
from engine.records.header import CRC_POSITION, LENGTH_POSITION, MAGIC_POSITION
from engine.records.scan import Scan, Tail, iter_headers, scan_batches
from tests.support.kafka import kafka
from tests.support.legacy import legacy_message
from tests.unit.engine.records import examples

FIRST, SECOND = examples.ONE_RECORD, examples.TRANSACTIONAL
BOTH = FIRST + SECOND
GOOD = len(FIRST)


def damaged(position: int) -> bytes:
    """Return both batches with one byte of the second changed."""
    batches = bytearray(BOTH)
    batches[GOOD + position] ^= 0x40
    return bytes(batches)


def test_whole_batches_scan_clean() -> None:
    """All bytes are valid, and the next offset is the one after the last batch."""
    assert scan_batches(BOTH) == Scan(len(BOTH), 103, Tail.CLEAN, 2)


def test_no_bytes_are_a_clean_end_without_offset() -> None:
    """An empty file is not torn, and has no offset."""
    assert scan_batches(b"") == Scan(0, None, Tail.CLEAN, 0)


@kafka("ByteBufferLogInputStreamTest.iteratorIgnoresIncompleteEntries")
@pytest.mark.parametrize("size", range(GOOD + 1, len(BOTH)))
def test_an_end_inside_a_batch_is_torn(size: int) -> None:
    """Wherever the last batch is cut, what stands before it is valid and the tail is torn."""
    scan = scan_batches(BOTH[:size])
    assert (scan.valid_bytes, scan.next_offset, scan.tail) == (GOOD, 1, Tail.TORN)
    assert scan.reason == f"{size - GOOD} bytes of an unfinished batch"


@pytest.mark.parametrize("size", [17, 18, 5000])
def test_zeros_at_the_end_are_torn(size: int) -> None:
    """Zeros that a file system leaves for unwritten data are a crash, not damage."""
    scan = scan_batches(BOTH + bytes(size))
    assert (scan.valid_bytes, scan.tail) == (len(BOTH), Tail.TORN)
    assert scan.reason == f"{size} bytes of zeros"


@pytest.mark.parametrize("position", [MAGIC_POSITION, CRC_POSITION, 30, len(SECOND) - 1])
def test_a_complete_batch_with_wrong_bytes_is_damaged(position: int) -> None:
    """Magic, checksum and its content: a wrong one ends the valid part, with a reason."""
    scan = scan_batches(damaged(position))
    assert (scan.valid_bytes, scan.next_offset, scan.tail) == (GOOD, 1, Tail.DAMAGED)
    assert scan.reason is not None


def test_zeros_before_other_bytes_are_damage() -> None:
    """A crash leaves zeros at the end, not in the middle."""
    assert scan_batches(FIRST + bytes(100) + SECOND).tail is Tail.DAMAGED


def test_offsets_that_go_back_are_damage() -> None:
    """No checksum covers the base offset: only the previous batch shows that it is wrong."""
    scan = scan_batches(SECOND + FIRST)
    assert (scan.valid_bytes, scan.next_offset, scan.tail) == (len(SECOND), 103, Tail.DAMAGED)
    assert scan.reason == "offset 0 instead of at least 103"


@kafka("ByteBufferLogInputStreamTest.iteratorRaisesOnTooLargeRecords")
def test_a_batch_over_the_limit_is_damage_even_if_unfinished() -> None:
    """A length that no batch may have is not waited for."""
    huge = bytearray(BOTH)
    huge[GOOD + LENGTH_POSITION] = 0x10
    assert scan_batches(huge).tail is Tail.TORN
    limited = scan_batches(huge, limit_bytes=len(SECOND))
    assert (limited.valid_bytes, limited.tail) == (GOOD, Tail.DAMAGED)
    assert scan_batches(BOTH, limit_bytes=len(SECOND)).tail is Tail.CLEAN


def test_an_older_format_is_neither_skipped_nor_cut() -> None:
    """A message before magic 2 is a batch like others; with a wrong checksum it is damage."""
    old = legacy_message(103, magic=1)
    assert scan_batches(BOTH + old) == Scan(len(BOTH) + len(old), 104, Tail.CLEAN, 3)
    assert scan_batches(BOTH + old[:-1] + b"?").tail is Tail.DAMAGED
    assert scan_batches(BOTH + old[:-1]).tail is Tail.TORN


def test_headers_come_with_their_positions() -> None:
    """Every complete batch is listed; an incomplete one is silently left out."""
    found = [(position, header.base_offset) for position, header in iter_headers(BOTH + FIRST[:40])]
    assert found == [(0, 0), (GOOD, 100)]


@kafka("FileRecordsTest.testIteratorWithLimits")
@pytest.mark.parametrize(("end", "count"), [(0, 0), (GOOD - 1, 0), (GOOD, 1), (None, 2), (999, 2)])
def test_headers_end_where_asked(end: int | None, count: int) -> None:
    """A slice of exactly one batch yields it, one byte fewer yields none."""
    assert len(list(iter_headers(BOTH, 0, end))) == count


def test_headers_start_where_asked() -> None:
    """The walk begins at the position given."""
    assert [position for position, _ in iter_headers(BOTH, GOOD)] == [GOOD]


def test_headers_that_cannot_be_framed_raise() -> None:
    """Iteration does not take damage for the end."""
    with pytest.raises(CorruptBatch):
        list(iter_headers(FIRST + bytes(20)))
