"""Any records survive any codec, and any change of bytes is noticed or harmless."""

import struct
from typing import TypeAlias

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.errors import CorruptBatch, InvalidRecord, TooLarge, UnsupportedCompression
from engine.records import varint
from engine.records.batch import BatchView, stamp_crc
from engine.records.builder import NewRecord, build_batch, encode_batch
from engine.records.check import check_records
from engine.records.compression import compress, decompress
from engine.records.header import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LENGTH_POSITION,
    Codec,
    decrement_sequence,
    increment_sequence,
)
from engine.records.record import decode_records
from engine.records.scan import Tail, scan_batches
from engine.types import INT32_MAX

LIMIT = 1 << 20

Change: TypeAlias = tuple[int, int, bytes]
"""Where in the bytes under the checksum (modulo their number), how many to drop, what to insert."""

contents = st.none() | st.binary(max_size=40)
timestamps = st.just(-1) | st.integers(0, 2**62)
headers = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3)
new_records = st.lists(st.tuples(timestamps, contents, contents, headers), min_size=1, max_size=12)
codecs = st.sampled_from(Codec)
changes = st.lists(
    st.tuples(st.integers(0), st.integers(0, 3), st.binary(max_size=6)), min_size=1, max_size=3
)


def changed(batch: bytearray, how: list[Change]) -> bytearray:
    """Return the batch with other bytes and a length and checksum that fit them."""
    body = batch[ATTRIBUTES_POSITION:]
    for position, dropped, inserted in how:
        at = position % len(body)
        body[at : at + dropped] = inserted
    forged = batch[:ATTRIBUTES_POSITION] + body
    assume(len(forged) >= HEADER_BYTES)
    struct.pack_into(">i", forged, LENGTH_POSITION, len(forged) - 12)
    stamp_crc(forged, 0, len(forged))
    return forged


@given(new_records, codecs, st.integers(0, 2**40))
def test_records_survive_their_encoding(
    records: list[NewRecord], codec: Codec, base_offset: int
) -> None:
    """A built batch passes every check and reads back unchanged, with both decoders."""
    batch = BatchView(build_batch(records, codec=codec, base_offset=base_offset))
    batch.ensure_intact()
    read = list(batch.records())
    assert [(each.timestamp, each.key, each.value, each.headers) for each in read] == records
    assert [each.offset for each in read] == list(range(base_offset, base_offset + len(records)))
    assert read == list(decode_records(batch.uncompressed(), batch.header))
    checked = check_records(batch, requires_keys=False, timestamp_bounds=None)
    assert (checked.count, checked.max_timestamp) == (
        len(records),
        max(timestamp for timestamp, *_ in records),
    )


@given(new_records)
def test_the_two_encoders_write_the_same(records: list[NewRecord]) -> None:
    """The compiled encoder and the plain one agree to the byte."""
    batch = BatchView(build_batch(records))
    assert encode_batch(batch.header, batch.records()) == batch.buffer


@given(new_records, codecs, changes)
def test_what_passes_the_check_reads_the_same_everywhere(
    records: list[NewRecord], codec: Codec, how: list[Change]
) -> None:
    """Forged content under a right checksum is refused, or read alike by all readers."""
    batch = BatchView(changed(build_batch(records, codec=codec), how))
    batch.ensure_intact()
    try:
        checked = check_records(
            batch, requires_keys=False, timestamp_bounds=None, limit_bytes=LIMIT
        )
    except (CorruptBatch, InvalidRecord, TooLarge, UnsupportedCompression):
        return
    read = list(batch.records(limit_bytes=LIMIT))
    assert read == list(decode_records(batch.uncompressed(limit_bytes=LIMIT), batch.header))
    assert [record.offset for record in read] == list(range(checked.count))


@given(new_records, codecs, changes)
def test_reading_forged_content_raises_nothing_unexpected(
    records: list[NewRecord], codec: Codec, how: list[Change]
) -> None:
    """For any bytes, reading yields records or raises one of its documented errors."""
    batch = BatchView(changed(build_batch(records, codec=codec), how))
    try:
        read = list(batch.records(limit_bytes=LIMIT))
    except (CorruptBatch, InvalidRecord, TooLarge, UnsupportedCompression):
        return
    assert len(read) == batch.header.records_count


@given(new_records, codecs, st.integers(0), st.integers(1, 255))
def test_every_changed_byte_under_the_checksum_is_noticed(
    records: list[NewRecord], codec: Codec, position: int, flipped: int
) -> None:
    """A batch with one byte changed from the attributes on is never intact."""
    batch = build_batch(records, codec=codec)
    at = ATTRIBUTES_POSITION + position % (len(batch) - ATTRIBUTES_POSITION)
    batch[at] ^= flipped
    with pytest.raises(CorruptBatch):
        BatchView(batch).ensure_intact()


@given(st.lists(new_records, min_size=1, max_size=4), st.integers(0))
def test_any_cut_leaves_the_batches_before_it(sets: list[list[NewRecord]], cut: int) -> None:
    """A log cut at any byte scans up to the last whole batch, and is clean only at its end."""
    ends, log, next_offset = [0], bytearray(), 0
    for records in sets:
        log += build_batch(records, base_offset=next_offset)
        next_offset += len(records)
        ends.append(len(log))
    size = cut % (len(log) + 1)
    scan = scan_batches(log[:size])
    whole = max(end for end in ends if end <= size)
    assert scan.valid_bytes == whole
    assert scan.batches_count == ends.index(whole)
    assert scan.tail is (Tail.CLEAN if whole == size else Tail.TORN)


@given(codecs, st.binary(max_size=2_000), st.integers(1, 40))
def test_bytes_survive_their_compression(codec: Codec, data: bytes, repeat: int) -> None:
    """Decompressing compressed bytes returns them, within a limit of exactly their size."""
    whole = data * repeat
    assert decompress(codec, compress(codec, whole), len(whole)) == whole


@given(st.sampled_from([codec for codec in Codec if codec is not Codec.NONE]), st.binary())
def test_no_bytes_crash_a_decompressor(codec: Codec, data: bytes) -> None:
    """Random bytes decompress to something small or are refused."""
    try:
        assert len(decompress(codec, data, 1_000)) <= 1_000
    except (CorruptBatch, TooLarge):
        return


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_numbers_survive_their_encoding(narrow: int, wide: int) -> None:
    """Varints and varlongs read back and end where they end; a varint has the size foretold."""
    encoded = varint.encode_varint(narrow) + varint.encode_varlong(wide)
    value, middle = varint.decode_varint(encoded, 0)
    assert (value, middle) == (narrow, varint.size_of_varint(narrow))
    value, end = varint.decode_varlong(encoded, middle)
    assert (value, end) == (wide, len(encoded))


@given(st.integers(0, INT32_MAX), st.integers(0, INT32_MAX))
def test_sequences_go_round(sequence: int, by: int) -> None:
    """Counting on is addition modulo 2**31, and counting back undoes it."""
    assert increment_sequence(sequence, by) == (sequence + by) % 2**31
    assert decrement_sequence(increment_sequence(sequence, by), by) == sequence
