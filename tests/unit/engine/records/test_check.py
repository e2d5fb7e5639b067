"""The check of a client's batch: what is accepted and refused, and with which error."""

import struct
import tracemalloc
from collections.abc import Callable

import pytest

from engine.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, TooLarge
from engine.records.batch import BatchView, stamp_crc, stamp_max_timestamp
from engine.records.builder import NewRecord, build_batch, encode_batch
from engine.records.check import (
    MAX_HEADERS,
    MAX_REPORTED_ERRORS,
    CheckedRecords,
    TimestampBounds,
    check_records,
)
from engine.records.header import (
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LENGTH_POSITION,
    RECORDS_COUNT_POSITION,
    Codec,
    TimestampType,
)
from engine.records.record import encode_record
from engine.records.varint import encode_varint
from tests.support.kafka import kafka
from tests.unit.engine.records import examples

T = examples.T
BOUNDS = TimestampBounds(T - 100, T + 100)


def check(
    batch: bytes | bytearray,
    *,
    requires_keys: bool = False,
    bounds: TimestampBounds | None = BOUNDS,
    limit_bytes: int = 1_000_000,
) -> CheckedRecords:
    return check_records(
        BatchView(batch),
        requires_keys=requires_keys,
        timestamp_bounds=bounds,
        limit_bytes=limit_bytes,
    )


def around(payload: bytes, *, count: int) -> bytearray:
    """Return an intact batch at time T around any payload, with a header that fits `count`."""
    batch = bytearray(examples.ONE_RECORD[:HEADER_BYTES] + payload)
    struct.pack_into(">i", batch, LENGTH_POSITION, len(batch) - 12)
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_POSITION, count - 1)
    struct.pack_into(">i", batch, RECORDS_COUNT_POSITION, count)
    stamp_crc(batch, 0, len(batch))
    return batch


def refused(kind: type[InvalidRecord], act: Callable[[], object]) -> list[tuple[object, ...]]:
    """Return index, field and code of every error listed by the refusal."""
    with pytest.raises(kind) as refusal:
        act()
    assert type(refusal.value) is kind
    assert all(error["detail"] for error in refusal.value.errors)
    return [(error["index"], error["field"], error["code"]) for error in refusal.value.errors]


@kafka("DefaultRecordBatchTest.testSkipKeyValueIteratorCorrectness")
@pytest.mark.parametrize("codec", Codec)
def test_a_right_batch_passes_and_tells_its_greatest_time(codec: Codec) -> None:
    """The count and largest record time are returned, for every codec."""
    batch = build_batch(
        [(T + 5, b"k", b"v", [("h", None)]), (T + 9, None, None, []), (T, b"", b"", [])],
        codec=codec,
    )
    assert check(batch) == CheckedRecords(3, T + 9)


def test_the_greatest_time_is_that_of_the_records_not_of_the_header() -> None:
    """A producer's header may claim another maximum."""
    batch = build_batch([(T, None, b"a", []), (T + 1, None, b"b", [])])
    stamp_max_timestamp(batch, 0, TimestampType.CREATE_TIME, T + 50)
    assert check(batch).max_timestamp == T + 1


@pytest.mark.parametrize("timestamp", [T - 100, T, T + 100])
def test_both_bounds_are_included(timestamp: int) -> None:
    """A time at the bound is within it."""
    assert check(build_batch([(timestamp, None, b"a", [])])).max_timestamp == timestamp


@pytest.mark.parametrize("timestamp", [0, T - 101, T + 101])
def test_a_time_beyond_a_bound_is_refused(timestamp: int) -> None:
    """The error names the record and its timestamp."""
    batch = build_batch([(T, None, b"a", []), (timestamp, None, b"b", [])])
    assert refused(InvalidTimestamp, lambda: check(batch)) == [
        (1, "timestamp", "invalid_timestamp")
    ]


def test_bounds_lie_around_the_present() -> None:
    """The topic's two settings count back and forth from now."""
    assert TimestampBounds.around(1_000, before_max_ms=300, after_max_ms=20) == (700, 1_020)


@pytest.mark.parametrize("timestamps", [[-1], [-1, -1], [T, -1], [-1, T]])
def test_a_record_without_time_is_within_any_bounds(timestamps: list[int]) -> None:
    """-1 means that there is no time to check."""
    batch = build_batch([(timestamp, None, b"a", []) for timestamp in timestamps])
    assert check(batch).max_timestamp == max(timestamps)


def test_a_topic_with_append_time_does_not_look_at_times() -> None:
    """Without bounds every time passes."""
    assert check(build_batch([(5, None, b"a", [])]), bounds=None).max_timestamp == 5


def test_a_batch_that_claims_append_time_is_judged_by_its_own_times() -> None:
    """On a topic with create time the flag neither excuses nor prevents anything."""
    batch = build_batch([(T, None, b"a", []), (T + 7, None, b"b", [])])
    stamp_max_timestamp(batch, 0, TimestampType.LOG_APPEND_TIME, T + 9_999)
    assert check(batch).max_timestamp == T + 7


@pytest.mark.parametrize(("timestamp", "bounds"), [(T, None), (-1, BOUNDS)])
def test_a_client_cannot_set_append_time_itself(
    timestamp: int, bounds: TimestampBounds | None
) -> None:
    """On a topic with append time, and for records without a time, the bit is refused."""
    batch = build_batch([(timestamp, None, b"a", [])])
    stamp_max_timestamp(batch, 0, TimestampType.LOG_APPEND_TIME, T)
    assert refused(InvalidTimestamp, lambda: check(batch, bounds=bounds)) == [
        (0, "timestamp", "invalid_timestamp")
    ]


@kafka("LogValidatorTest.checkNoKeyCompactedTopic")
def test_compacted_topics_need_keys() -> None:
    """A null key is refused where compaction could not place it, an empty key is not."""
    batch = build_batch([(T, b"", b"a", []), (T, None, b"b", [])])
    assert check(batch).count == 2
    assert refused(InvalidRecord, lambda: check(batch, requires_keys=True)) == [
        (1, "key", "invalid_record")
    ]


@kafka(
    "LogValidatorTest.testBatchWithInvalidRecordsAndInvalidTimestamp",
    "LogValidatorTest.testInvalidRecordExceptionHasBatchIndex",
)
def test_all_faults_are_listed_and_a_time_among_them_decides() -> None:
    """The client learns of every record at once; a wrong time makes it a timestamp error."""
    batch = build_batch([(T, None, b"a", []), (1, None, b"b", []), (T, b"k", b"c", [])])
    assert refused(InvalidTimestamp, lambda: check(batch, requires_keys=True)) == [
        (0, "key", "invalid_record"),
        (1, "key", "invalid_record"),
        (1, "timestamp", "invalid_timestamp"),
    ]


def test_the_list_of_faults_has_an_end() -> None:
    """A batch of many wrong records is answered with the first hundred faults."""
    batch = build_batch([(0, None, b"a", [])] * (MAX_REPORTED_ERRORS + 5))
    errors = refused(InvalidTimestamp, lambda: check(batch, requires_keys=True))
    assert len(errors) == MAX_REPORTED_ERRORS
    assert errors[-1] == (MAX_REPORTED_ERRORS // 2 - 1, "timestamp", "invalid_timestamp")


@kafka(
    "LogValidatorTest.testRecordBatchWithCountOverrides",
    "LogValidatorTest.testInconsistentCountAndOffset",
)
@pytest.mark.parametrize(("count", "delta"), [(0, -1), (-1, -2), (1, 1), (2, 0), (-5, 4)])
def test_a_header_that_contradicts_itself_is_refused(count: int, delta: int) -> None:
    """Offsets and count must agree on at least one record before any record is looked at."""
    batch = around(b"never looked at", count=1)
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_POSITION, delta)
    struct.pack_into(">i", batch, RECORDS_COUNT_POSITION, count)
    assert refused(InvalidRecord, lambda: check(batch)) == []
    with pytest.raises(InvalidRecord, match=rf"{count} records for {delta + 1} offsets$"):
        check(batch)


@kafka("LogValidatorTest.testValidationOfBatchesWithNonSequentialInnerOffsets")
@pytest.mark.parametrize("offsets", [[1], [0, 2], [0, 0], [1, 0], [0, -1]])
def test_offsets_must_count_from_zero(offsets: list[int]) -> None:
    """A gap, a repetition or another order would give records offsets they cannot have."""
    payload = b"".join(encode_record(offset, 0, None, b"a") for offset in offsets)
    wrong = [index for index, offset in enumerate(offsets) if index != offset]
    errors = refused(InvalidRecord, lambda: check(around(payload, count=len(offsets))))
    assert errors == [(index, "offset", "invalid_record") for index in wrong]


@kafka("LogValidatorTest.testUnmatchedNumberOfRecords")
@pytest.mark.parametrize("count", [1, 3])
def test_more_or_fewer_records_than_counted_are_refused(count: int) -> None:
    """Bytes after the last record and a record that is not there name the place."""
    payload = encode_record(0, 0, None, b"a") + encode_record(1, 0, None, b"b")
    errors = refused(InvalidRecord, lambda: check(around(payload, count=count)))
    assert errors == [(count - 1, "record", "invalid_record")]


WRONG_RECORDS = {
    "declared too long": "10 00 00 00 01 02 61 00",
    "declared too short": "0c 00 00 00 01 02 61 00",
    "key past the end": "0e 00 00 00 7e 02 61 00",
    "negative header count": "0e 00 00 00 01 02 61 01",
    "absurd header count": "0e 00 00 00 01 02 61 7e",
    "null header name": "12 00 00 00 01 02 61 02 01 01",
    "length of six bytes": "8e 80 80 80 80 00 00 00 00 01 02 61 00",
    "offset of six bytes": "18 00 00 80 80 80 80 80 00 01 02 61 00",
    "offset of 34 bits": "16 00 00 80 80 80 80 20 01 02 61 00",
    "value length of six bytes": "18 00 00 00 01 82 80 80 80 80 00 61 00",
    "null key of 37 bits": "18 00 00 00 81 80 80 80 80 01 02 61 00",
    "time of eleven bytes": "22 00 80 80 80 80 80 80 80 80 80 80 00 00 01 02 61 00",
    "attributes with the top bit": "10 80 00 00 00 01 02 61 00",
    "number over the end": "0e 00 00 00 01 02 61 80",
}


@pytest.mark.parametrize("name", WRONG_RECORDS)
def test_what_other_readers_could_not_read_is_refused(name: str) -> None:
    """A right checksum around a wrong record is not enough, even where one codec is lenient."""
    batch = around(bytes.fromhex(WRONG_RECORDS[name]), count=1)
    assert refused(InvalidRecord, lambda: check(batch)) == [(0, "record", "invalid_record")]


UNUSUAL_RECORDS = {
    "value length of two bytes": "10 00 00 00 01 82 00 61 00",
    "null key as -2": "0e 00 00 00 03 02 61 00",
    "attributes in use": "0e 01 00 00 01 02 61 00",
    "header name without UTF-8": "14 00 00 00 01 02 61 02 02 ff 01",
    "a first time that is not the base": "0e 00 08 00 01 02 61 00",
}


@pytest.mark.parametrize("name", UNUSUAL_RECORDS)
def test_what_every_reader_can_read_passes(name: str) -> None:
    """Encodings that no writer uses but every reader understands are accepted by the slow path."""
    batch = around(bytes.fromhex(UNUSUAL_RECORDS[name]), count=1)
    checked = check(batch)
    (record,) = BatchView(batch).records()
    assert (record.offset, record.value) == (0, b"a")
    assert (checked.count, checked.max_timestamp) == (1, record.timestamp)


def test_the_limit_holds_for_what_is_decompressed() -> None:
    """A small batch with a large content is refused by its content's size."""
    batch = build_batch([(T, None, bytes(10_000), [])], codec=Codec.GZIP)
    with pytest.raises(TooLarge) as refusal:
        check(batch, limit_bytes=10_000)
    assert refusal.value.facts()["limit_bytes"] == 10_000
    assert check(batch, limit_bytes=11_000).count == 1


def with_headers(count: int) -> bytes:
    """Return a record with that many empty headers, without building a list of them."""
    body = b"\0\0\0\1\1" + encode_varint(count) + bytes(2 * count)
    return encode_varint(len(body)) + body


def test_a_record_may_not_have_millions_of_headers() -> None:
    """A bomb of empty headers is refused without making them."""
    payload = encode_record(0, 0, b"k", bytes(2 * MAX_HEADERS)) + with_headers(2_000_000)
    batch = BatchView(around(payload, count=2))
    tracemalloc.start()
    try:
        errors = refused(
            InvalidRecord, lambda: check(batch.buffer.tobytes(), limit_bytes=10_000_000)
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert errors == [(1, "headers", "invalid_record")]
    assert peak < 20_000_000


def test_a_record_that_hides_its_headers_is_not_decoded() -> None:
    """Millions of headers in a small declared length are refused without decoding them."""
    hidden = b"\x0c" + with_headers(2_000_000)[4:]
    batch = around(encode_record(0, 0, None, b"a") + hidden, count=2)
    tracemalloc.start()
    try:
        errors = refused(InvalidRecord, lambda: check(batch, limit_bytes=10_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert errors == [(1, "record", "invalid_record")]
    assert peak < 60_000_000


def test_many_records_are_checked_in_parts() -> None:
    """A payload of several megabytes passes as a whole, with the greatest time of all parts."""
    records: list[NewRecord] = [(T + index % 90, b"k", bytes(1_000), []) for index in range(5_000)]
    checked = check(build_batch(records, codec=Codec.ZSTD), limit_bytes=10_000_000)
    assert (checked.count, checked.max_timestamp) == (5_000, T + 89)


@pytest.mark.parametrize("tail", [b"", b"\x03", b"\x80" * 6, b"\x01", b"\xfe\xff\xff\x0f"])
def test_large_payloads_with_wrong_frames_are_diagnosed(tail: bytes) -> None:
    """If lengths are wrong, the plain decoder says what is wrong."""
    payload = encode_record(0, 0, None, bytes(2 * MAX_HEADERS)) + tail
    batch = around(payload, count=2)
    assert refused(InvalidRecord, lambda: check(batch, limit_bytes=10_000_000)) == [
        (1, "record", "invalid_record")
    ]


def test_a_large_record_passes() -> None:
    """A megabyte of value is not a megabyte of headers."""
    batch = build_batch([(T, None, bytes(3 * MAX_HEADERS), [("h", b"v")])] * 2)
    assert check(batch, limit_bytes=10_000_000).count == 2


def test_a_damaged_payload_is_corrupt() -> None:
    """A compressed payload that cannot be decompressed is damage and not wrong content."""
    batch = build_batch([(T, None, bytes(1_000), [])], codec=Codec.LZ4)
    batch[HEADER_BYTES] ^= 0xFF
    with pytest.raises(CorruptBatch):
        check(batch)


def test_the_batch_is_not_changed() -> None:
    """Checking reads: the bytes are the client's before and after."""
    view = BatchView(examples.TRANSACTIONAL)
    batch = encode_batch(
        view.header._replace(base_offset=0),
        [record._replace(offset=index) for index, record in enumerate(view.records())],
    )
    before = bytes(batch)
    check(batch, bounds=None)
    assert batch == before
