"""Records to batches: Kafka's bytes, Kafka's refusals."""

import pytest

from engine.errors import InvalidRequestValue
from engine.records import builder
from engine.records.batch import BatchView
from engine.records.builder import (
    NewRecord,
    RecordColumns,
    build_batch,
    encode_batch,
    recompress_batch,
)
from engine.records.header import (
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    Codec,
    TimestampType,
    parse_header,
)
from engine.records.record import Record
from engine.types import INT32_MAX
from tests.support.kafka import kafka
from tests.unit.engine.records import examples

RECORDS: list[NewRecord] = [
    (timestamp, key, value, headers)
    for _, timestamp, key, value, headers in examples.TRANSACTIONAL_RECORDS
]


def test_the_worked_example_is_built_byte_for_byte() -> None:
    """A transactional batch with headers, nulls and times out of order equals Kafka's."""
    batch = build_batch(
        RECORDS,
        base_offset=100,
        leader_epoch=5,
        producer_id=4000,
        producer_epoch=1,
        base_sequence=10,
        is_transactional=True,
    )
    assert batch == examples.TRANSACTIONAL


def test_a_producers_batch_needs_no_arguments() -> None:
    """The defaults are those of a producer without id: offset 0 and no epoch."""
    assert build_batch([(examples.T, None, b"a", [])]) == examples.ONE_RECORD


@kafka("MemoryRecordsTest.testChecksum")
@pytest.mark.parametrize(
    ("codec", "crc"),
    [(Codec.NONE, examples.TWO_RECORDS_CRC), (Codec.LZ4, examples.TWO_RECORDS_LZ4_CRC)],
)
def test_kafkas_own_checksums_are_reproduced(codec: Codec, crc: int) -> None:
    """The two records of Kafka's checksum test give its numbers, compressed or not."""
    batch = build_batch(examples.TWO_RECORDS, codec=codec)
    assert parse_header(batch).crc == crc
    BatchView(batch).ensure_intact()


def test_lz4_and_snappy_examples_are_built_from_their_records() -> None:
    """The stored block of LZ4 equals the example; snappy decodes to the same records."""
    records: list[NewRecord] = [
        (examples.T, b"k1", b"hello", []),
        (examples.T + 1, b"k2", b"world", []),
    ]
    assert build_batch(records, codec=Codec.LZ4) == examples.LZ4_STORED
    snappy = BatchView(build_batch(records, codec=Codec.SNAPPY))
    assert list(snappy.records()) == list(BatchView(examples.SNAPPY).records())


@kafka("DefaultRecordTest.testBasicSerde", "MemoryRecordsBuilderTest.buildUsingCreateTime")
@pytest.mark.parametrize("codec", Codec)
def test_what_is_built_is_read_again(codec: Codec) -> None:
    """Every codec keeps the records, the count and the greatest time."""
    batch = BatchView(build_batch(RECORDS, codec=codec, base_offset=100))
    batch.ensure_intact()
    assert [tuple(record) for record in batch.records()] == examples.TRANSACTIONAL_RECORDS
    assert batch.header.codec is codec
    assert batch.header.records_count == 3
    assert batch.header.max_timestamp == examples.T + 150


@kafka("MemoryRecordsBuilderTest.testWriteEmptyRecordSet")
@pytest.mark.parametrize("codec", Codec)
def test_no_records_make_no_batch(codec: Codec) -> None:
    """Nothing in, no bytes out, not even a header."""
    assert build_batch([], codec=codec) == b""


@kafka("MemoryRecordsBuilderTest.buildUsingLogAppendTime")
def test_log_append_time_gives_every_record_the_maximum() -> None:
    """The type is in the header and the maximum is what readers see."""
    batch = BatchView(build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME))
    batch.ensure_intact()
    assert {record.timestamp for record in batch.records()} == {examples.T + 150}


def test_headers_may_be_any_sequence() -> None:
    """Tuples of headers are as good as lists."""
    batch = BatchView(build_batch([(1, None, None, (("h", b"v"),)), (2, None, None, ())]))
    assert [record.headers for record in batch.records()] == [[("h", b"v")], []]


def test_columns_build_the_batch_of_their_records() -> None:
    """With headers in some of the joined parts or in none, shared by records or not."""
    shared: list[tuple[str, bytes | None]] = [("content-type", b"text/plain")]
    plain = RecordColumns([1, 2], [None, b"k"], [b"a", b"b"])
    headed = RecordColumns([3, 1], [None, b"k"], [b"c", None], [shared, [("x", None)]])
    for parts in ([plain], [headed], [plain, plain], [plain, headed], [headed, plain]):
        records: list[NewRecord] = [record for part in parts for record in part]
        assert build_batch(RecordColumns.of(parts)) == build_batch(records)
    assert [len(headers) for *_, headers in RecordColumns.of([plain, headed])] == [0, 0, 1, 1]


def test_keys_and_values_may_be_any_buffer() -> None:
    """What came out of a request body as a view needs no copy."""
    batch = BatchView(build_batch([(1, bytearray(b"k"), memoryview(b"v"), [])]))
    assert [(record.key, record.value) for record in batch.records()] == [(b"k", b"v")]


@pytest.mark.parametrize("timestamps", [[-1], [-1, -1], [-1, 5, 3], [5, -1], [0, -1, 7]])
def test_missing_timestamps_stay_missing(timestamps: list[int]) -> None:
    """-1 in any place comes back as -1, the first place included."""
    records: list[NewRecord] = [(timestamp, None, memoryview(b"v"), []) for timestamp in timestamps]
    batch = BatchView(
        build_batch(records, base_offset=9, producer_id=1, producer_epoch=0, base_sequence=0)
    )
    batch.ensure_intact()
    read = list(batch.records())
    assert [record.timestamp for record in read] == timestamps
    assert [record.offset for record in read] == list(range(9, 9 + len(timestamps)))
    assert batch.header.max_timestamp == max(timestamps)
    assert batch.header.base_timestamp == timestamps[0]


@pytest.mark.parametrize("timestamps", [[-2], [1, -2], [-1, -2]])
def test_other_negative_timestamps_are_refused(timestamps: list[int]) -> None:
    """-1 is the only negative time there is."""
    with pytest.raises(InvalidRequestValue, match="timestamp -2"):
        build_batch([(timestamp, None, None, []) for timestamp in timestamps])


@kafka("MemoryRecordsBuilderTest.testWriteTransactionalWithInvalidPID")
def test_a_transaction_needs_a_producer() -> None:
    """A transactional batch without a producer id is refused."""
    with pytest.raises(InvalidRequestValue, match="needs a producer id"):
        build_batch(RECORDS, is_transactional=True)


@kafka(
    "MemoryRecordsBuilderTest.testWriteIdempotentWithInvalidEpoch",
    "MemoryRecordsBuilderTest.testWriteIdempotentWithInvalidBaseSequence",
)
@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
def test_a_producer_id_needs_epoch_and_sequence(epoch: int, sequence: int) -> None:
    """A producer id alone does not identify a batch."""
    with pytest.raises(InvalidRequestValue, match="needs an epoch"):
        build_batch(RECORDS, producer_id=1, producer_epoch=epoch, base_sequence=sequence)


def test_a_batch_beyond_31_bits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes than the length field can hold are an error, compressed or not."""
    monkeypatch.setattr(builder, "INT32_MAX", 99)
    assert parse_header(build_batch([(1, None, bytes(43), [])])).length == 99
    for codec in (Codec.NONE, Codec.LZ4):
        with pytest.raises(InvalidRequestValue, match="too many for one batch"):
            build_batch([(1, None, bytes(range(44)), [])], codec=codec)


@pytest.mark.parametrize("name", examples.ALL)
def test_encoding_under_the_same_header_reproduces_the_batch(name: str) -> None:
    """Every example, control batch and emptied batch included, is its own re-encoding."""
    batch = BatchView(examples.ALL[name])
    again = BatchView(encode_batch(batch.header, batch.records()))
    assert list(again.records()) == list(batch.records())
    if batch.header.codec is not Codec.SNAPPY:  # whose compressor differs from the example's
        assert again.buffer == batch.buffer


@kafka(
    "MemoryRecordsTest.testBaseTimestampToDeleteHorizonConversion",
    "MemoryRecordsBuilderTest.testRecordTimestampsWithDeleteHorizon",
)
def test_compaction_keeps_the_offset_range_and_sets_a_horizon() -> None:
    """Survivors keep offsets and times when deltas count from the horizon instead."""
    header = parse_header(examples.TRANSACTIONAL)
    _, tombstone, last = BatchView(examples.TRANSACTIONAL).records()
    horizon = header._replace(
        attributes=header.attributes | DELETE_HORIZON_MASK, base_timestamp=examples.T + 9_999_999
    )
    kept = BatchView(encode_batch(horizon, [tombstone, last]))
    kept.ensure_intact()
    assert list(kept.records()) == [tombstone, last]
    assert (kept.header.base_offset, kept.header.last_offset) == (100, 102)
    assert kept.header.records_count == 2
    assert kept.header.has_delete_horizon


@kafka("MemoryRecordsBuilderTest.testAppendAtInvalidOffset")
@pytest.mark.parametrize("offsets", [[99], [103], [101, 101], [102, 101]])
def test_offsets_outside_the_header_or_out_of_order_are_refused(offsets: list[int]) -> None:
    """A batch cannot hold an offset twice, backwards or beyond its range."""
    header = parse_header(examples.TRANSACTIONAL)
    with pytest.raises(InvalidRequestValue, match="does not ascend"):
        encode_batch(header, [Record(offset, examples.T, None, None, []) for offset in offsets])


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_recompression_changes_the_codec_only(source: Codec, target: Codec) -> None:
    """Any codec to any other: same records, same header but for codec, length and checksum."""
    batch = BatchView(build_batch(RECORDS * 50, codec=source, base_offset=7, leader_epoch=3))
    again = BatchView(recompress_batch(batch, target, level=1))
    again.ensure_intact()
    assert again.header.codec is target
    assert again.uncompressed() == batch.uncompressed()
    same = {"attributes": 0, "length": 0, "crc": 0}
    assert again.header._replace(**same) == batch.header._replace(**same)


def test_the_payload_of_a_compressed_batch_is_smaller() -> None:
    """A thousand equal values shrink under every codec but none."""
    records: list[NewRecord] = [(1, None, bytes(100), [])] * 1000
    sizes = [len(build_batch(records, codec=codec)) for codec in Codec]
    assert all(size < sizes[0] // 10 for size in sizes[1:])
    assert sizes[0] > HEADER_BYTES + 1000 * 100
    assert sizes[0] < INT32_MAX
