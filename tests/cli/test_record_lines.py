"""Lines of input become the records they say, and bad ones are named."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.failures import BadInput
from app.client.record_lines import (
    Fields,
    RecordLine,
    read_documents,
    read_raw,
    read_records,
    record_line,
)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"value": 1}', None),
        (b'{"key": null, "value": 1}', None),
        (b'{"key": "caf\xc3\xa9", "value": 1}', "café".encode()),
        (b'{"key": "a\\u0062", "key_encoding": "utf8", "value": 1}', b"ab"),
        (b'{"key": 1.50, "value": 1}', b"1.50"),
        (b'{"key": {"a": 1}, "key_encoding": "json", "value": 1}', b'{"a": 1}'),
        (b'{"key": "AAEC", "key_encoding": "base64", "value": 1}', b"\x00\x01\x02"),
    ],
)
def test_a_record_goes_on_unchanged_with_the_key_the_service_will_store(
    line: bytes, key: bytes | None
) -> None:
    """Every encoding of a key gives the bytes that choose the partition; the line stays."""
    assert list(read_records([b"  " + line + b" \r\n"])) == [RecordLine(line, key, 1)]


def test_empty_lines_are_passed_over_and_still_counted() -> None:
    """An error after empty lines has the line number that an editor shows."""
    records = read_records([b"\n", b'{"value": 1}\n', b" \n", b"oops\n"])
    assert next(records).line == b'{"value": 1}'
    with pytest.raises(BadInput, match="line 4: ") as caught:
        next(records)
    assert caught.value.line == 4


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[1]", "object"),
        (b'{"key": "a"', "truncated"),
        (b'{"key": 1, "key_encoding": "utf8"}', "str"),
        (b'{"key": "%%", "key_encoding": "base64"}', "not base64"),
        (b'{"key": "a", "key_encoding": "hex"}', "not 'hex'"),
    ],
)
def test_a_line_that_is_no_record_is_refused_before_anything_is_sent(
    line: bytes, reason: str
) -> None:
    """A record that the client cannot parse is reported with its line and the reason."""
    with pytest.raises(BadInput, match=reason):
        list(read_records([line]))


def test_a_document_is_stored_as_it_was_typed() -> None:
    """Without fields to look at any JSON is a value, byte for byte, and has no key."""
    (record,) = read_documents([b'[1.50,  "x"]\n'], Fields())
    assert record == RecordLine(b'{"value":[1.50,  "x"]}', None, 1)


@pytest.mark.parametrize(
    ("document", "key", "stored"),
    [
        (b'{"k":"a\\u0062"}', b"ab", b'"ab"'),
        (b'{"k":12}', b"12", b'"12"'),
        (b'{"k":{"b": 1}}', b'{"b": 1}', rb'"{\"b\": 1}"'),
        (b'{"k":null}', None, None),
    ],
)
def test_a_field_becomes_the_key(document: bytes, key: bytes | None, stored: bytes | None) -> None:
    """A string is the key as it is, anything else its JSON text, null no key at all."""
    (record,) = read_documents([document], Fields(key="k"))
    expected = b'{"value":' + document + (b',"key":' + stored if stored else b"") + b"}"
    assert record == RecordLine(expected, key, 1)


@pytest.mark.parametrize(
    ("moment", "timestamp_ms"),
    [
        (b"1388534400000", 1388534400000),
        (b'"2014-01-01T00:00:00Z"', 1388534400000),
        (b'"2014-01-01"', 1388534400000),
        (b'"2014-01-01T01:00:00.250+01:00"', 1388534400250),
    ],
)
def test_a_field_becomes_the_event_time(moment: bytes, timestamp_ms: int) -> None:
    """A number is ms since the epoch already; a string is ISO 8601, of UTC unless it says."""
    (record,) = read_documents([b'{"t":' + moment + b"}"], Fields(timestamp="t"))
    assert msgspec.json.decode(record.line)["timestamp"] == timestamp_ms


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"{}", "has no field 't'"),
        (b'{"t": true}', "neither"),
        (b'{"t": 1.5}', "neither"),
        (b'{"t": "yesterday"}', "yesterday"),
        (b"17", "object"),
    ],
)
def test_a_document_without_the_field_asked_for_is_refused(document: bytes, reason: str) -> None:
    """A missing or invalid time is reported with its line, not replaced by the present."""
    with pytest.raises(BadInput, match=reason):
        list(read_documents([document], Fields(timestamp="t")))


@given(st.text() | st.none(), st.integers(0, 2**53) | st.none())
def test_a_record_line_says_what_went_into_it(key: str | None, timestamp_ms: int | None) -> None:
    """Building a line and reading it as a record gives key and time back."""
    line = record_line(b'{"n":1}', key=key, timestamp_ms=timestamp_ms)
    decoded = msgspec.json.decode(line)
    assert decoded == {
        "value": {"n": 1},
        **({} if key is None else {"key": key}),
        **({} if timestamp_ms is None else {"timestamp": timestamp_ms}),
    }
    assert [r.key for r in read_records([line])] == [None if key is None else key.encode()]


def test_a_base64_key_chooses_the_partition_of_its_bytes() -> None:
    """Bytes that are not text are hashed as the bytes that the base64 encodes."""
    raw = bytes(range(256))
    line = msgspec.json.encode({"key": base64.b64encode(raw).decode(), "key_encoding": "base64"})
    assert [record.key for record in read_records([line])] == [raw]


@given(st.lists(st.binary().filter(lambda value: b"\n" not in value), max_size=4))
def test_a_raw_line_is_stored_byte_for_byte(values: list[bytes]) -> None:
    """Text, JSON, spaces and bytes that are not text become values unchanged, without a key."""
    stored = []
    for line, key, _ in read_raw([value + b"\n" for value in values]):
        record = msgspec.json.decode(line)
        is_text = record["value_encoding"] == "utf8"
        stored.append(record["value"].encode() if is_text else base64.b64decode(record["value"]))
        assert key is None
    assert stored == [value.removesuffix(b"\r") for value in values]


def test_a_line_end_is_not_part_of_a_raw_line() -> None:
    """LF and CRLF are; an empty line is a line; what else looks empty is kept."""
    assert list(read_raw([b"a \r\n", b"\r\n", b' {"b": 1}'])) == [
        RecordLine(b'{"value":"a ","value_encoding":"utf8"}', None, 1),
        RecordLine(b'{"value":"","value_encoding":"utf8"}', None, 2),
        RecordLine(b'{"value":" {\\"b\\": 1}","value_encoding":"utf8"}', None, 3),
    ]
