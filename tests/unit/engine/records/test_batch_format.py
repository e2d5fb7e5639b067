"""Rows about record batches that no test of a single module asserts."""

import pytest

from engine.config import LogConfig
from engine.errors import InvalidRecord
from engine.records.batch import BatchView, stamp_crc
from engine.records.builder import NewRecord, build_batch, encode_batch
from engine.records.header import (
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_BYTES,
    MAGIC_2,
    RECORDS_COUNT_POSITION,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Codec,
    TimestampType,
    parse_header,
)
from engine.types import AppendOrigin
from tests.support.builders import World
from tests.support.conformance_places import transaction_of
from tests.support.kafka import kafka
from tests.support.logs import read_headers, read_records

RECORDS: list[NewRecord] = [
    (10, b"key", b"value", [("name", b"content"), ("name", None)]),
    (30, None, b"", []),
    (20, b"", None, []),
]
CODECS = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)


@kafka("DefaultRecordBatchTest.testWriteEmptyHeader")
@CODECS
def test_an_empty_batch_is_a_header_that_knows_its_range(codec: Codec) -> None:
    """Without records the header keeps every field, and the range follows from its delta."""
    header = BatchHeader(
        base_offset=37,
        length=0,
        leader_epoch=15,
        magic=MAGIC_2,
        crc=0,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK | codec,
        last_offset_delta=22,
        base_timestamp=-1,
        max_timestamp=1_700_000_000_000,
        producer_id=23_423,
        producer_epoch=145,
        base_sequence=983,
        records_count=0,
    )
    batch = encode_batch(header, [])
    view = BatchView(batch)
    view.ensure_intact()
    written = view.header
    assert len(batch) == written.size_bytes == HEADER_BYTES == 61
    assert (written.base_offset, written.last_offset) == (37, 59)
    assert (written.base_sequence, written.last_sequence) == (983, 1005)
    assert (written.producer_id, written.producer_epoch, written.leader_epoch) == (23_423, 145, 15)
    assert (written.is_transactional, written.is_control, written.codec) == (True, True, codec)
    assert (written.base_timestamp, written.records_count) == (-1, 0)
    assert list(view.records()) == []


@kafka("DefaultRecordBatchTest.buildDefaultRecordBatch")
def test_a_batch_without_producer_has_none_of_its_fields() -> None:
    """Two records from 1234567 on: the greatest time is theirs."""
    batch = build_batch(
        [(1_234_567, b"1", b"v", []), (1_234_568, b"2", b"v", [])], base_offset=1_234_567
    )
    view = BatchView(batch)
    view.ensure_intact()
    header = view.header
    assert (header.base_offset, header.last_offset) == (1_234_567, 1_234_568)
    assert (header.base_timestamp, header.max_timestamp) == (1_234_567, 1_234_568)
    assert (header.producer_id, header.producer_epoch) == (-1, -1)
    assert (header.base_sequence, header.last_sequence) == (-1, -1)


@kafka("DefaultRecordBatchTest.buildDefaultRecordBatchWithProducerId")
def test_a_producers_batch_ends_with_its_last_sequence() -> None:
    """The last of three sequences from 10 on is 12."""
    header = parse_header(
        build_batch(RECORDS, producer_id=9, producer_epoch=3, base_sequence=10, base_offset=7)
    )
    assert (header.producer_id, header.producer_epoch) == (9, 3)
    assert (header.base_sequence, header.last_sequence, header.last_offset) == (10, 12, 9)


@kafka("DefaultRecordBatchTest.testSizeInBytes")
@CODECS
def test_the_size_of_a_batch_is_the_number_of_its_bytes(codec: Codec) -> None:
    """The header's size includes headers, nulls and codec."""
    for records in (RECORDS, RECORDS[:1], RECORDS[2:]):
        batch = build_batch(records, codec=codec)
        assert parse_header(batch).size_bytes == len(batch)


@kafka(
    "DefaultRecordBatchTest.testInvalidRecordCountTooManyNonCompressedV2",
    "DefaultRecordBatchTest.testInvalidRecordCountTooManyCompressedV2",
    "DefaultRecordBatchTest.testInvalidRecordCountTooLittleNonCompressedV2",
    "DefaultRecordBatchTest.testInvalidRecordCountTooLittleCompressedV2",
)
@CODECS
@pytest.mark.parametrize("count", [2, 4])
def test_a_count_that_is_wrong_is_found_under_every_codec(codec: Codec, count: int) -> None:
    """One record fewer or more than counted is an error, be the checksum right."""
    batch = build_batch(RECORDS, codec=codec)
    batch[RECORDS_COUNT_POSITION : RECORDS_COUNT_POSITION + 4] = count.to_bytes(4, "big")
    stamp_crc(batch, 0, len(batch))
    view = BatchView(batch)
    view.ensure_intact()
    with pytest.raises(InvalidRecord):
        list(view.records())


@kafka(
    "MemoryRecordsTest.testFilterToPreservesLogAppendTime",
    "MemoryRecordsTest.testFilterToPreservesPartitionLeaderEpoch",
    "MemoryRecordsTest.testFilterToPreservesProducerInfo",
)
def test_rewriting_survivors_keeps_what_is_not_theirs() -> None:
    """Append time, leader epoch, producer and the range of offsets outlive the records between."""
    batch = build_batch(
        RECORDS,
        base_offset=40,
        leader_epoch=6,
        producer_id=9,
        producer_epoch=3,
        base_sequence=10,
        is_transactional=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    before = BatchView(batch)
    survivor = [record for record in before.records() if record.offset == 41]
    rewritten = BatchView(encode_batch(before.header, survivor))
    rewritten.ensure_intact()
    after = rewritten.header
    assert after.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert after.records_count == 1
    unchanged = {"length": 0, "crc": 0, "records_count": 0}
    assert after._replace(**unchanged) == before.header._replace(**unchanged)
    assert list(rewritten.records()) == survivor


@kafka("BrokerCompressionTest.testBrokerSideCompression")
@CODECS
@pytest.mark.parametrize("wanted", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_stored_batch_has_the_codec_of_its_topic(codec: Codec, wanted: str) -> None:
    """Whatever codec was sent, the topic's is stored; the sent one if the topic says `producer`."""
    log = World().open_log(LogConfig(compression_type=wanted, segment_index_bytes=1200))
    sent = build_batch(RECORDS, codec=codec)
    log.append(bytes(sent))
    log.durability.commit()
    (header,) = read_headers(log)
    stored = {"producer": codec, "uncompressed": Codec.NONE}
    assert header.codec is (stored[wanted] if wanted in stored else Codec.of_label(wanted))
    assert read_records(log) == list(BatchView(sent).records())


@pytest.mark.parametrize("origin", [AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION])
def test_only_clients_batches_are_recompressed(origin: AppendOrigin) -> None:
    """Batches of a coordinator or another log keep their codec, whatever the topic says."""
    log = World().open_log(LogConfig(compression_type="snappy", segment_index_bytes=1200))
    log.append(build_batch(RECORDS), origin=origin)
    log.durability.commit()
    (header,) = read_headers(log)
    assert header.attributes & CODEC_MASK == Codec.NONE


@kafka("LogValidatorTest.testControlRecordsNotCompressed")
def test_a_marker_is_not_compressed_among_batches_that_are() -> None:
    """A topic's codec is for records of clients."""
    log = World().open_log(LogConfig(compression_type="snappy", segment_index_bytes=1200))
    producer = transaction_of(log, 1)
    producer.send(3)
    producer.commit()
    log.durability.commit()
    data, marker = read_headers(log)
    assert (data.codec, data.is_control) == (Codec.SNAPPY, False)
    assert (marker.codec, marker.is_control) == (Codec.NONE, True)
