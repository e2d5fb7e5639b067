"""The decoder against aiokafka's, on batches of every codec and on damaged ones."""

from __future__ import annotations

import struct
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_tidelog.errors import DamagedBatchError
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.records.columns import spark_schema
from pyspark_tidelog.records.decode import MAX_ROWS, Decoder
from tests.support import kafka_batches
from tests.support.kafka_batches import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    SentRecord,
    decoded,
    encode,
    numbered,
    reframed,
)

ALL = tuple(spark_schema(include_headers=True).fieldNames())
LOG = TopicPartition("flights", 3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
small = st.none() | st.binary(max_size=20)
sent_records = st.builds(
    SentRecord,
    timestamp=st.integers(0, 1 << 42),
    key=small,
    value=small | st.binary(min_size=60, max_size=200) | st.just(b"z" * 9_000),
    headers=st.lists(st.tuples(texts, small), max_size=3).map(tuple),
)
batches_of_records = st.lists(st.lists(sent_records, min_size=1, max_size=12), max_size=4)


def decode_batches(
    data: bytes, start: int = 0, end: int = 1 << 62, *, columns: tuple[str, ...] = ALL, **rest: Any
) -> list[pa.RecordBatch]:
    decoder = Decoder(LOG, columns, end, **rest)
    return list(decoder.decode(data, decoder.frames(data, start), start))


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """Return the rows in the shape in which `decoded` gives those of aiokafka."""
    return [
        (
            row["offset"],
            (row["timestamp"] - EPOCH) // timedelta(milliseconds=1),
            row["timestampType"],
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or ()],
        )
        for batch in batches
        for row in batch.to_pylist()
    ]


def concatenated(batches: list[list[SentRecord]], codecs: list[int]) -> bytes:
    data, offset = b"", 0
    for records, codec in zip(batches, codecs, strict=False):
        data += encode(records, codec=codec, base_offset=offset)
        offset += len(records)
    return data


@given(batches_of_records, st.lists(st.integers(0, 4), min_size=4, max_size=4))
def test_batches_of_all_codecs_decode_as_aiokafka_decodes_them(
    batches: list[list[SentRecord]], codecs: list[int]
) -> None:
    """Keys, values, headers, times and offsets of random batches are those another decoder sees."""
    data = concatenated(batches, codecs)
    assert rows_of(decode_batches(data, check_crcs=True)) == decoded(data)


@settings(max_examples=25)
@given(
    st.lists(st.lists(sent_records, min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
)
def test_many_batches_at_once_decode_as_aiokafka_decodes_them(
    shapes: list[list[SentRecord]], codecs: list[int]
) -> None:
    """With enough batches for parallel decoding, plain and compressed, the results are the same."""
    batches = [shapes[number % len(shapes)] for number in range(60)]
    data = concatenated(batches, [codecs[number % len(codecs)] for number in range(60)])
    assert rows_of(decode_batches(data)) == decoded(data)


@given(batches_of_records, st.integers(0, 30), st.integers(0, 30))
def test_only_offsets_inside_the_range_are_decoded(
    batches: list[list[SentRecord]], start: int, length: int
) -> None:
    """Whatever the batches' borders, exactly the offsets from start to before end come out."""
    data = concatenated(batches, [0, ZSTD, 0, SNAPPY])
    expected = [row for row in decoded(data) if start <= row[0] < start + length]
    assert rows_of(decode_batches(data, start, start + length)) == expected


def test_raw_snappy_is_decoded_like_the_framed_one() -> None:
    """Snappy comes in blocks from Java and in one piece from librdkafka; both are understood."""
    plain = encode(numbered(50, size_bytes=100))
    raw = bytes(cramjam.snappy.compress_raw(plain[HEADER_BYTES:]))
    assert rows_of(decode_batches(reframed(plain, payload=raw, codec=SNAPPY))) == decoded(plain)


def test_topic_and_partition_stand_in_every_row() -> None:
    """The columns that are the same in every row carry the log that was asked."""
    (batch,) = decode_batches(encode(numbered(3)), columns=("topic", "partition"))
    assert batch.to_pylist() == [{"topic": "flights", "partition": 3}] * 3


def test_columns_come_in_the_order_asked_for_with_the_types_spark_expects() -> None:
    """A projection yields its columns alone, as types that Spark's first-batch check accepts."""
    (batch,) = decode_batches(encode(numbered(3)), columns=("timestampType", "value", "timestamp"))
    assert batch.schema == pa.schema(
        [
            ("timestampType", pa.int32()),
            ("value", pa.binary()),
            ("timestamp", pa.timestamp("us", "UTC")),
        ]
    )


def test_control_batches_are_left_out() -> None:
    """The marker that ends a transaction is not a record; what follows it is."""
    marker = reframed(
        encode([SentRecord(1, b"\0\0\0\1", b"\0" * 6)], base_offset=2), attributes=CONTROL
    )
    data = encode(numbered(2)) + marker + encode(numbered(2), base_offset=3)
    assert [row[0] for row in rows_of(decode_batches(data))] == [0, 1, 3, 4]


def test_empty_batches_that_compaction_leaves_are_passed_over() -> None:
    """A batch without records holds its offsets in place and yields nothing."""
    empty = bytearray(reframed(encode(numbered(4)), payload=b"", codec=ZSTD))
    struct.pack_into(">i", empty, 57, 0)
    data = bytes(empty) + encode(numbered(2), base_offset=4)
    assert [row[0] for row in rows_of(decode_batches(data))] == [4, 5]


def test_append_time_is_the_batch_maximum_with_type_one() -> None:
    """With log append time every record carries the time the log gave to its batch."""
    data = reframed(encode(numbered(3)), attributes=LOG_APPEND_TIME)
    assert {row[1:3] for row in rows_of(decode_batches(data))} == {(1_788_000_000_002, 1)}


def test_offsets_with_gaps_keep_their_values() -> None:
    """Compaction removes records and leaves the offsets of the others alone."""
    records = b"".join(
        bytes([12, 0, 0, 2 * delta, 1, 0, 0]) for delta in (0, 3, 7)
    )  # length 6: attributes, time, offset delta, null key, empty value, no headers
    framed = bytearray(reframed(encode(numbered(8)), payload=records))
    struct.pack_into(">i", framed, 57, 3)
    assert [row[0] for row in rows_of(decode_batches(bytes(framed)))] == [0, 3, 7]


def test_a_torn_last_batch_is_left_for_the_next_request() -> None:
    """Of an answer that broke off, the whole batches count and the rest does not."""
    data = encode(numbered(2)) + encode(numbered(2), base_offset=2)[:-1]
    assert [row[0] for row in rows_of(decode_batches(data))] == [0, 1]


def test_one_huge_batch_comes_in_pieces_of_bounded_rows() -> None:
    """However many records a batch holds, Spark is handed ten thousand at a time at most."""
    batches = decode_batches(encode(numbered(25_000), codec=LZ4))
    assert [batch.num_rows for batch in batches] == [8_333, 8_333, 8_334]
    assert max(batch.num_rows for batch in batches) <= MAX_ROWS
    assert [row[0] for row in rows_of(batches)] == list(range(25_000))


def test_a_batch_of_large_records_comes_in_pieces_of_bounded_bytes() -> None:
    """Few records of many bytes are cut by bytes."""
    batches = decode_batches(encode(numbered(40, size_bytes=100_000), codec=GZIP))
    assert [batch.num_rows for batch in batches] == [13, 13, 14]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_grows_beyond_the_limit_is_refused(codec: int) -> None:
    """Some bytes can claim to hold gigabytes; what they hold is bounded by us, not by them."""
    data = encode([SentRecord(0, None, b"\0" * 3_000_000)], codec=codec)
    with pytest.raises(DamagedBatchError, match=r"topic flights, partition 3, at offset 0: "):
        decode_batches(data, limit_bytes=2_000_000)
    assert decode_batches(data, limit_bytes=4_000_000)[0].num_rows == 1


def test_many_small_batches_that_grow_are_not_held_at_once() -> None:
    """What is in memory is bounded by one batch, not by all that the answer can grow into."""
    data = b"".join(
        encode([SentRecord(0, None, b"\0" * 4_000_000)], codec=ZSTD, base_offset=offset)
        for offset in range(10)
    )
    decoder = Decoder(LOG, ("value",), 10)
    tracemalloc.start()
    rows = sum(batch.num_rows for batch in decoder.decode(data, decoder.frames(data, 0), 0))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == 10
    assert peak_bytes < 20_000_000


@given(st.data())
def test_with_checksums_any_flipped_bit_of_a_batch_is_found(data: st.DataObject) -> None:
    """One wrong bit after the checksum, anywhere, names topic, partition and offset."""
    codec = data.draw(st.integers(0, 4))
    good = encode(numbered(5), codec=codec)
    damaged = bytearray(encode(numbered(5), codec=codec, base_offset=5))
    bit = data.draw(st.integers(8 * kafka_batches.ATTRIBUTES_POSITION, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedBatchError, match="topic flights, partition 3, at offset 5: "):
        decode_batches(good + bytes(damaged), check_crcs=True)


@given(st.data())
def test_without_checksums_damage_is_an_error_or_harmless_never_a_crash(
    data: st.DataObject,
) -> None:
    """Wrong bytes inside the records either do not hold together or leave records that do."""
    codec = data.draw(st.sampled_from([0, 0, SNAPPY, ZSTD]))
    records = [*numbered(4), SentRecord(5, None, b"v", (("a", b"1"), ("b", None)))]
    batch = bytearray(encode(records, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    try:
        rows = rows_of(decode_batches(bytes(batch)))
    except DamagedBatchError as error:
        assert "topic flights, partition 3, at offset 0: " in str(error)  # noqa: PT017 - or no error
    else:
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        assert len(rows) == len(records)


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (16, b"\x01", "message format 1 is not record batch v2"),
        (8, struct.pack(">i", 48), "batch length 48 is shorter than a header"),
        (57, struct.pack(">i", -1), "a count or an offset in the header is negative"),
        (57, struct.pack(">i", 4), "5 records where the header says 4"),
        (21, struct.pack(">h", 5), "compression 5 does not exist"),
        (23, struct.pack(">i", 2), "an offset is outside its batch"),
        (23, struct.pack(">i", 3), "an offset is outside its batch"),  # by one
    ],
)
def test_a_wrong_header_is_named(position: int, value: bytes, reason: str) -> None:
    """What the header says and the records do not bear out is an error with its reason."""
    batch = bytearray(encode(numbered(5), base_offset=70))
    batch[position : position + len(value)] = value
    with pytest.raises(DamagedBatchError, match=f"at offset 70: {reason}"):
        decode_batches(bytes(batch), 70)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (bytes([0xFF] * 6), "the length of a record has more than five bytes"),
        (bytes([24, 0]) + bytes([0x80] * 11), "a varint has more than ten bytes"),
        (bytes([12, 0, 0, 0, 1, 0, 2]), "is inconsistent"),  # a header announced, none there
        (bytes([14, 0, 0, 0, 1, 0, 0, 0]), "is inconsistent"),  # a byte left over
        (bytes([14, 0, 0, 0, 5, 1, 0, 0]), "is inconsistent"),  # a key length of -3
        (bytes([16, 0, 0, 0, 1, 0, 2, 3, 1]), "the headers of a record do not end"),
        (bytes([18, 0, 0, 0, 1, 0, 2, 2, 0xFF, 1]), "the key of a header is not UTF-8"),
        (bytes([18, 0, 0, 0, 1, 0, 2, 0x7E, 1, 0]), "a header extends beyond|headers of a record"),
        (bytes([0x7E, 0]), "extends beyond the end of its batch"),
        (bytes([0x80]), "extends beyond the end of its batch"),
        (bytes([0x80, 0x80]), "extends beyond the end of its batch"),
    ],
)
def test_a_record_that_does_not_hold_together_is_named(record: bytes, reason: str) -> None:
    """Every way in which the fields of one record can contradict each other is found."""
    batch = reframed(encode(numbered(1), base_offset=7), payload=record)
    with pytest.raises(DamagedBatchError, match=f"at offset 7: .*({reason})"):
        decode_batches(batch, check_crcs=True)


def test_batches_that_overlap_are_damage() -> None:
    """A batch that begins again inside the one before would repeat its records."""
    data = encode(numbered(3)) + encode(numbered(3), base_offset=2)
    with pytest.raises(DamagedBatchError, match="at offset 2: the batch begins before the"):
        decode_batches(data)


def test_the_damaged_batch_among_many_is_named_without_checksums() -> None:
    """Batches are decoded together; what one of them has done wrong is not put on the others."""
    wrong = reframed(encode(numbered(2), base_offset=2), payload=bytes([12, 0, 0, 0, 1, 0, 2]) * 2)
    for codec in (0, ZSTD):
        data = encode(numbered(2), codec=codec) + wrong + encode(numbered(2), base_offset=4)
        with pytest.raises(DamagedBatchError, match="at offset 2: record 0 of the group"):
            decode_batches(data)


def test_offsets_that_do_not_rise_are_damage() -> None:
    """Two records of one offset would break exactly-once downstream, so they do not pass."""
    record = bytes([12, 0, 0, 0, 1, 0, 0])
    batch = reframed(encode(numbered(2)), payload=record + record)
    with pytest.raises(DamagedBatchError, match="offsets do not increase"):
        decode_batches(batch)


@pytest.mark.parametrize(
    "payload", [b"\x82SNAPPY\x00" + bytes(10), b"\x82SNAPPY\x00" + bytes(8) + b"\0\0\0\x7f"]
)
def test_framed_snappy_that_ends_early_is_damage(payload: bytes) -> None:
    """Blocks that are declared and missing are distinguished from the end."""
    batch = reframed(encode(numbered(1)), payload=payload, codec=SNAPPY)
    with pytest.raises(DamagedBatchError, match="snappy"):
        decode_batches(batch)
