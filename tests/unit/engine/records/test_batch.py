"""The view over one batch, and the stamps a leader makes in place."""

import struct

import pytest

from engine.errors import CorruptBatch, InvalidRecord, TooLarge, UnsupportedMagic
from engine.records.batch import (
    BatchView,
    stamp_crc,
    stamp_max_timestamp,
    stamp_offset_and_epoch,
)
from engine.records.builder import build_batch
from engine.records.compiled import DECODING_ERRORS
from engine.records.header import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LENGTH_POSITION,
    RECORDS_COUNT_POSITION,
    Codec,
    TimestampType,
    parse_header,
)
from tests.support.kafka import kafka
from tests.unit.engine.records import examples

HELLO_WORLD: list[tuple[object, ...]] = [
    (0, examples.T, b"k1", b"hello", []),
    (1, examples.T + 1, b"k2", b"world", []),
]


def with_payload(payload: bytes, *, count: int) -> bytearray:
    """Return an intact uncompressed batch around any payload."""
    batch = bytearray(examples.ONE_RECORD[:HEADER_BYTES] + payload)
    struct.pack_into(">i", batch, LENGTH_POSITION, len(batch) - 12)
    struct.pack_into(">i", batch, RECORDS_COUNT_POSITION, count)
    stamp_crc(batch, 0, len(batch))
    return batch


@pytest.mark.parametrize("name", examples.ALL)
def test_the_worked_examples_are_intact(name: str) -> None:
    """Every checksum of the format page is the one computed here."""
    BatchView(examples.ALL[name]).ensure_intact()


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("one-record", [(0, examples.T, None, b"a", [])]),
        ("transactional", examples.TRANSACTIONAL_RECORDS),
        ("lz4-stored", HELLO_WORLD),
        ("snappy", HELLO_WORLD),
        ("emptied", []),
        (
            "commit-marker",
            [(103, examples.T + 200, bytes.fromhex("00000001"), bytes.fromhex("000000000003"), [])],
        ),
    ],
)
def test_the_worked_examples_hold_their_records(
    name: str, records: list[tuple[object, ...]]
) -> None:
    """With every codec, a batch yields the records of its description."""
    batch = BatchView(examples.ALL[name])
    assert [tuple(record) for record in batch.records()] == records
    assert [record.value for record in batch.compiled_records()] == [
        value for *_, value, _ in records
    ]


def test_a_view_is_exactly_its_batch_and_copies_nothing() -> None:
    """Bytes before and after do not show, and a change of the buffer does."""
    buffer = bytearray(b"before" + examples.TRANSACTIONAL + b"after")
    batch = BatchView(buffer, 6)
    assert batch.buffer == examples.TRANSACTIONAL
    assert batch.payload == examples.TRANSACTIONAL[HEADER_BYTES:]
    assert batch.uncompressed() == batch.payload
    buffer[-6] ^= 1
    with pytest.raises(CorruptBatch, match="0xa3381e29 is stored"):
        batch.ensure_intact()


@kafka("DefaultRecordBatchTest.testInvalidCrc")
@pytest.mark.parametrize("position", range(ATTRIBUTES_POSITION, len(examples.ONE_RECORD)))
def test_any_byte_under_the_checksum_is_guarded(position: int) -> None:
    """Whichever byte from the attributes on changes, the batch is no longer intact."""
    batch = bytearray(examples.ONE_RECORD)
    batch[position] ^= 0x01
    with pytest.raises(CorruptBatch) as refused:
        BatchView(batch).ensure_intact()
    assert refused.value.facts()["stored_crc"] == 0x965A94B1


@pytest.mark.parametrize("size", [HEADER_BYTES, len(examples.TRANSACTIONAL) - 1])
def test_a_batch_that_is_cut_short_has_no_view(size: int) -> None:
    """A header without all of its records is corrupt."""
    with pytest.raises(CorruptBatch, match="of 106 bytes at 0 ends after"):
        BatchView(examples.TRANSACTIONAL[:size])


def test_the_old_formats_have_no_stream_of_records() -> None:
    """Asking for the records of magic 2 in a batch before it raises its own error."""
    view = BatchView(examples.MAGIC_1)
    with pytest.raises(UnsupportedMagic, match="magic 1"):
        view.uncompressed()
    with pytest.raises(UnsupportedMagic, match="magic 1"):
        view.compiled_records()


def test_a_record_without_timestamp_reports_minus_one() -> None:
    """A reader gets the format's number for a missing timestamp."""
    batch = build_batch([(-1, None, b"a", [])])
    assert [record.timestamp for record in BatchView(batch).records()] == [-1]


@kafka(
    "DefaultRecordBatchTest.testSetLastOffset",
    "DefaultRecordBatchTest.testSetPartitionLeaderEpoch",
)
def test_stamping_offset_and_epoch_leaves_the_checksum_alone() -> None:
    """Offset and epoch are outside the checksum: two fields change and nothing else."""
    stamped = bytearray(examples.ONE_RECORD)
    stamp_offset_and_epoch(stamped, 0, 1_234_567, 7)
    assert stamped[:8].hex() == "000000000012d687"
    assert stamped[12:16].hex() == "00000007"
    assert stamped[8:12] + stamped[16:] == examples.ONE_RECORD[8:12] + examples.ONE_RECORD[16:]
    batch = BatchView(stamped)
    batch.ensure_intact()
    assert [record.offset for record in batch.records()] == [1_234_567]


def test_stamps_go_to_the_batch_at_the_position() -> None:
    """In a set of batches only the one named changes."""
    both = bytearray(examples.ONE_RECORD * 2)
    second = len(examples.ONE_RECORD)
    stamp_offset_and_epoch(both, second, 5, 1)
    stamp_max_timestamp(both, second, TimestampType.LOG_APPEND_TIME, 9)
    assert both[:second] == examples.ONE_RECORD
    BatchView(both, second).ensure_intact()


@kafka("DefaultRecordBatchTest.testSetLogAppendTime")
def test_log_append_time_changes_type_maximum_and_checksum_only() -> None:
    """Base timestamp and records stay as they are, and every record reports the new time."""
    batch = bytearray(examples.ONE_RECORD)
    stamp_max_timestamp(batch, 0, TimestampType.LOG_APPEND_TIME, 1_700_000_005_000)
    assert batch[17:23].hex() == "6dfe40a90008"
    assert batch[23:35] == examples.ONE_RECORD[23:35]
    assert batch[35:43].hex() == "0000018bcfe57b88"
    assert batch[43:] == examples.ONE_RECORD[43:]
    view = BatchView(batch)
    view.ensure_intact()
    assert [record.timestamp for record in view.records()] == [1_700_000_005_000]


def test_a_timestamp_that_is_right_already_costs_nothing() -> None:
    """If neither type nor maximum change, not even a wrong checksum is changed."""
    batch = bytearray(examples.ONE_RECORD)
    batch[17] ^= 0xFF
    before = bytes(batch)
    stamp_max_timestamp(batch, 0, TimestampType.CREATE_TIME, examples.T)
    assert batch == before


def test_create_time_clears_a_stray_append_time() -> None:
    """The type goes back as well, and attribute bits without a meaning are dropped."""
    batch = bytearray(examples.ONE_RECORD)
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, 0x7F88 & ~0x0001 | 0x10)
    stamp_max_timestamp(batch, 0, TimestampType.CREATE_TIME, 3)
    header = parse_header(batch)
    assert (header.attributes, header.max_timestamp) == (0x10, 3)
    BatchView(batch).ensure_intact()


@pytest.mark.parametrize("count", [2, -1])
def test_a_wrong_count_is_found_while_reading(count: int) -> None:
    """A count that the records do not bear out raises, be the checksum right."""
    batch = BatchView(with_payload(examples.ONE_RECORD[HEADER_BYTES:], count=count))
    batch.ensure_intact()
    with pytest.raises(InvalidRecord):
        list(batch.records())


@pytest.mark.parametrize("payload", [b"", examples.ONE_RECORD[HEADER_BYTES:]])
def test_a_negative_count_is_no_empty_batch(payload: bytes) -> None:
    """The compiled codec takes it for none: without a record there was nothing left to notice.

    Found by fuzzing the scanner.
    """
    batch = BatchView(with_payload(payload, count=-255))
    batch.ensure_intact()
    with pytest.raises(InvalidRecord, match="claims -255 records"):
        list(batch.records())
    with pytest.raises(DECODING_ERRORS):
        batch.compiled_records()


def test_records_before_a_fault_come_out_once() -> None:
    """When the compiled codec gives up, the plain one continues from there."""
    records = build_batch(
        [(5, b"k", b"1", []), (6, b"k", b"2", [("h", b"x")]), (7, None, b"3", [])]
    )
    records[records.index(b"h")] = 0xFF  # no UTF-8: the compiled codec refuses the record
    stamp_crc(records, 0, len(records))
    read = list(BatchView(records).records())
    assert [record.value for record in read] == [b"1", b"2", b"3"]
    assert read[1].headers == [("\N{REPLACEMENT CHARACTER}", b"x")]


def test_a_length_close_to_64_bits_is_refused() -> None:
    """A key of 2**63 - 50 bytes, whose end overflows, raises instead of being allocated."""
    length = bytes.fromhex("9cffffffffffffffff01")
    body = b"\0\0\0" + length
    batch = BatchView(with_payload(bytes([len(body) * 2]) + body, count=1))
    with pytest.raises(InvalidRecord):
        list(batch.records())


def test_reading_stops_at_the_limit() -> None:
    """A batch that would decompress to more than allowed raises before the first record."""
    batch = BatchView(build_batch([(1, None, bytes(100_000), [])], codec=Codec.ZSTD))
    with pytest.raises(TooLarge):
        next(batch.records(limit_bytes=99_999))
    with pytest.raises(TooLarge):
        batch.compiled_records(limit_bytes=99_999)
