"""One record in plain Python: what Kafka's reader accepts, and every way to be wrong."""

import pytest

from engine.errors import InvalidRecord
from engine.records.header import HEADER_BYTES, TIMESTAMP_TYPE_MASK, BatchHeader, parse_header
from engine.records.record import Record, decode_record, decode_records, encode_record
from engine.records.varint import encode_varint
from tests.support.kafka import kafka
from tests.unit.engine.records import examples

HEADER = parse_header(examples.TRANSACTIONAL)
PAYLOAD = examples.TRANSACTIONAL[HEADER_BYTES:]


def decoded(payload: bytes, **fields: int) -> list[tuple[object, ...]]:
    header: BatchHeader = HEADER._replace(**fields)
    return [tuple(record) for record in decode_records(payload, header)]


def framed(body: str) -> bytes:
    """Return a body of hex digits with the length in front that it has."""
    raw = bytes.fromhex(body)
    return encode_varint(len(raw)) + raw


def test_the_worked_example_decodes_to_its_records() -> None:
    """Offsets and times come out absolute; nulls, headers and a time before the first are kept."""
    assert decoded(PAYLOAD) == examples.TRANSACTIONAL_RECORDS


def test_encoding_the_records_gives_the_payload_again() -> None:
    """The encoder is the inverse of the decoder for the worked example."""
    encoded = b"".join(
        encode_record(offset - 100, timestamp - examples.T, key, value, headers)
        for offset, timestamp, key, value, headers in examples.TRANSACTIONAL_RECORDS
    )
    assert encoded == PAYLOAD


def test_log_append_time_is_the_time_of_every_record() -> None:
    """With bit 3 the maximum replaces the deltas."""
    records = decoded(PAYLOAD, attributes=TIMESTAMP_TYPE_MASK, max_timestamp=77)
    assert [timestamp for _, timestamp, *_ in records] == [77, 77, 77]


def test_timestamps_wrap_at_64_bits() -> None:
    """A delta that leads beyond 64 bits wraps, as it does for every other reader."""
    payload = encode_record(0, 1, None, b"a")
    records = decoded(payload, records_count=1, base_timestamp=2**63 - 1)
    assert records == [(100, -(2**63), None, b"a", [])]


def test_no_records_leave_the_payload_untouched() -> None:
    """A batch of count 0 yields nothing, whatever bytes follow."""
    assert decoded(b"anything", records_count=0) == []


@pytest.mark.parametrize(
    ("count", "message"),
    [(-1, "claims -1 records"), (2, "bytes follow the last of 2"), (4, "end after 3 of 4")],
)
def test_a_count_that_is_not_the_number_of_records_is_refused(count: int, message: str) -> None:
    """Too few, too many and negative counts raise, with the records before the fault yielded."""
    with pytest.raises(InvalidRecord, match=message):
        decoded(PAYLOAD, records_count=count)


def test_any_negative_length_of_key_and_value_means_null() -> None:
    """Kafka writes -1 and reads every negative length as null."""
    record, end = decode_record(framed("00 00 00 03 05 00"), 0)
    assert record == Record(0, 0, None, None, [])
    assert end == 7


def test_header_names_that_are_no_utf8_are_read_with_replacements() -> None:
    """As in Java, a wrong name is not a wrong record."""
    record, _ = decode_record(framed("00 00 00 01 01 02 02 ff 01"), 0)
    assert record.headers == [("\N{REPLACEMENT CHARACTER}", None)]


@kafka(
    "DefaultRecordTest.testBasicSerdeInvalidHeaderCountTooHigh",
    "DefaultRecordTest.testInvalidKeySize",
    "DefaultRecordTest.testInvalidNumHeaders",
    "DefaultRecordTest.testInvalidHeaderKey",
    "DefaultRecordTest.testUnderflowReadingTimestamp",
)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("00 00 00 7e 01 00", "a field claims 63"),  # key past the end
        ("00 00 00 01 7e 00", "a field claims 63"),  # value past the end
        ("00 00 00 01 01 01", "claims -1 headers"),
        ("00 00 00 01 01 7e", "claims 63 headers"),
        ("00 00 00 01 01 02 01 01", "name of a header is null"),
        ("00 00 00 01 01 02 7e 01", "a field claims 63"),  # header name past the end
        ("00 00 00 01 01 02 02 68 7e", "a field claims 63"),  # header value past the end
        ("00 00 00 01 01 04 02 68 01", "end inside a number"),  # the second header is not there
        ("00 00 00 01 01 00 00", "1 bytes that belong to no field"),
        ("00 00 00 01 01", "end inside a number"),  # no header count
        ("00", "end inside a number"),  # nothing after the attributes
        ("00 ffffffffffffffffffff01", "more than 64 bits"),
        ("00 00 ffffffffff01", "more than 32 bits"),
        ("80 00 00 01 01 00", "attributes 0x80"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(body: str, message: str) -> None:
    """Every field that does not fit its record raises, however much follows in the batch."""
    with pytest.raises(InvalidRecord, match=message):
        decode_record(framed(body) + PAYLOAD, 0)


@kafka("DefaultRecordTest.testInvalidSizeOfBodyInBytes")
@pytest.mark.parametrize("length", [-1, 0, 7, 2**31 - 1])
def test_a_record_that_does_not_fit_the_payload_is_refused(length: int) -> None:
    """A declared size that is empty, negative or larger than the rest raises before it is used."""
    with pytest.raises(InvalidRecord, match=f"claims {length} of 6"):
        decode_record(encode_varint(length) + bytes.fromhex("000000010100"), 0)
