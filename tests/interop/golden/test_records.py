"""What a real broker and two kinds of client wrote, read and written again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.records.batch import BatchView
from engine.records.builder import encode_batch
from engine.records.check import check_records
from engine.records.compression import compress
from engine.records.control import END_MARKER_BYTES, build_end_marker, parse_end_marker
from engine.records.header import HEADER_BYTES, Codec, TimestampType, pack_header
from engine.records.record import decode_records
from engine.records.scan import Tail, iter_headers, scan_batches
from tests.support.golden import (
    ExpectedRecord,
    golden_archive,
    golden_expected,
    golden_partitions,
    golden_records,
)
from tests.support.kafka import kafka

PARTITIONS = [
    f"{archive}/{directory.name}"
    for archive in ("clean", "compacted", "killed")
    for directory in golden_partitions(archive)
]
COMPRESSED = [name for name in PARTITIONS if "lz4" in name or "java-snappy" in name]


def logs_of(partition: str) -> list[bytes]:
    archive, _, name = partition.partition("/")
    directory: Path = golden_archive(archive) / name
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


def batches_of(partition: str) -> Iterator[BatchView]:
    for log in logs_of(partition):
        for position, _ in iter_headers(log):
            yield BatchView(log, position)


def consumed(batch: BatchView) -> Iterator[ExpectedRecord]:
    """Yield the batch's records in the form of `expected.json`."""
    for record in batch.records():
        yield ExpectedRecord(
            record.offset,
            record.timestamp,
            batch.header.timestamp_type + 1,
            record.key,
            record.value,
            tuple(record.headers),
            batch.header.leader_epoch,
        )


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_segment_scans_clean(partition: str) -> None:
    """Framing and checksum of every batch hold, to the last byte of every file."""
    for log in logs_of(partition):
        scan = scan_batches(log)
        assert (scan.tail, scan.valid_bytes) == (Tail.CLEAN, len(log))


@pytest.mark.parametrize("directory", golden_partitions("clean"), ids=lambda path: str(path.name))
def test_the_records_are_those_that_a_consumer_got(directory: Path) -> None:
    """Offsets, times and their type, keys, values, headers and epochs equal a consumer's view."""
    log_start_offset = golden_expected(directory)["log_start_offset"]
    read = [
        record
        for batch in batches_of(f"clean/{directory.name}")
        if not batch.header.is_control
        for record in consumed(batch)
        if record.offset >= log_start_offset
    ]
    assert read == golden_records(directory)


@kafka("DefaultRecordBatchTest.testStreamingIteratorConsistency")
@pytest.mark.parametrize("partition", PARTITIONS)
def test_both_decoders_read_the_same(partition: str) -> None:
    """The compiled decoder and the plain one agree on everything a broker stored."""
    for batch in batches_of(partition):
        records = list(batch.records())
        assert records == list(decode_records(batch.uncompressed(), batch.header))
        assert len(records) == batch.header.records_count


@pytest.mark.parametrize("partition", PARTITIONS)
def test_reencoding_reproduces_the_bytes(partition: str) -> None:
    """Header and records, decoded and encoded again, are the broker's: delete horizons included."""
    for batch in batches_of(partition):
        assert pack_header(batch.header) == batch.buffer[:HEADER_BYTES]
        if batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            continue  # the times that the deltas stand for are not what readers see
        plain = batch.header._replace(attributes=batch.header.attributes & ~0x07)
        again = BatchView(encode_batch(plain, batch.records()))
        assert again.payload == batch.uncompressed()
        if batch.header.codec is Codec.NONE:
            assert again.buffer == batch.buffer


@pytest.mark.parametrize("partition", COMPRESSED)
def test_lz4_and_javas_snappy_are_compressed_to_the_same_bytes(partition: str) -> None:
    """Where the compressor is the same, so is every byte of the payload."""
    compressed = [batch for batch in batches_of(partition) if batch.header.codec is not Codec.NONE]
    assert compressed
    for batch in compressed:
        assert compress(batch.header.codec, batch.uncompressed()) == batch.payload


def test_broker_markers_are_built_byte_for_byte() -> None:
    """Every end of a transaction in the archive is what we would have written."""
    markers = [batch for batch in batches_of("clean/txn-0") if batch.header.is_control]
    assert len(markers) >= 24, "one for each transaction of the archive"
    for batch in markers:
        end = parse_end_marker(batch)
        assert end is not None
        again = build_end_marker(
            end.control_type,
            producer_id=batch.header.producer_id,
            producer_epoch=batch.header.producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            timestamp=end.timestamp,
            base_offset=end.offset,
            leader_epoch=batch.header.leader_epoch,
        )
        assert again == batch.buffer
        assert len(again) == END_MARKER_BYTES


@pytest.mark.parametrize("partition", [name for name in PARTITIONS if name.startswith("clean/")])
def test_what_clients_sent_passes_the_check(partition: str) -> None:
    """No batch of librdkafka or the Java producer is refused, and its greatest time is known."""
    for batch in batches_of(partition):
        if batch.header.is_control or batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            continue
        checked = check_records(batch, requires_keys=False, timestamp_bounds=None)
        assert checked.count == batch.header.records_count
        assert checked.max_timestamp == batch.header.max_timestamp
