"""One record: the value, and the encoding of Kafka's `DefaultRecord` in plain Python.

    length           varint   bytes after this field
    attributes       1 byte   0
    timestamp_delta  varlong  ms after the batch's base timestamp, may be negative
    offset_delta     varint   after the batch's base offset
    key              varint length (-1 for null), bytes
    value            varint length (-1 for null), bytes
    headers          varint count, then each: varint length, UTF-8 name; varint length (-1), bytes

This module decides what is valid: it accepts what Kafka's reader accepts, and names every fault.
`compiled` is several times faster and decodes most batches; this module decodes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from engine.errors import InvalidRecord
from engine.records.header import BatchHeader, TimestampType
from engine.records.varint import decode_varint, decode_varlong, encode_varint, encode_varlong
from engine.types import Buffer

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_NULL = encode_varint(-1)


class Record(NamedTuple):
    """One record, with absolute offset and timestamp in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
) -> bytes:
    """Return the record with its length prefix, as in an uncompressed batch."""
    parts: list[Buffer] = [
        b"\0",
        encode_varlong(timestamp_delta),
        encode_varint(offset_delta),
        *_nullable(key),
        *_nullable(value),
        encode_varint(len(headers)),
    ]
    for name, content in headers:
        parts += _nullable(name.encode())
        parts += _nullable(content)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def decode_records(payload: Buffer, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of a batch from its uncompressed bytes.

    Raises `InvalidRecord` at the first malformed record, if the bytes end before `records_count`
    records or continue after them, and for a negative count; with a count of 0 the bytes are
    ignored. Header names that are not UTF-8 get replacement characters, as in Java.
    """
    if header.records_count < 0:
        raise InvalidRecord(f"the batch claims {header.records_count} records")
    append_time = (
        header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    )
    position = 0
    for index in range(header.records_count):
        if position >= len(payload):
            raise InvalidRecord(
                f"the bytes end after {index} of {header.records_count} records", index=index
            )
        delta, position = decode_record(payload, position)
        timestamp = append_time
        if timestamp is None:
            timestamp = absolute_timestamp(header, delta.timestamp)
        yield delta._replace(offset=header.base_offset + delta.offset, timestamp=timestamp)
    if header.records_count and position != len(payload):
        raise InvalidRecord(
            f"{len(payload) - position} bytes follow the last of {header.records_count} records"
        )


def decode_record(payload: Buffer, position: int) -> tuple[Record, int]:
    """Return the record at `position`, with offset and timestamp deltas, and the next position."""
    length, start = decode_varint(payload, position)
    end = start + length
    if not start < end <= len(payload):
        raise InvalidRecord(f"a record claims {length} of {len(payload) - start} bytes left")
    body = memoryview(payload)[:end]  # so that no field is read past the record's end
    _ensure_plain_attributes(body[start])
    timestamp_delta, position = decode_varlong(body, start + 1)
    offset_delta, position = decode_varint(body, position)
    key, position = _decode_nullable(body, position)
    value, position = _decode_nullable(body, position)
    headers, position = _decode_headers(body, position)
    if position != end:
        raise InvalidRecord(f"a record has {end - position} bytes that belong to no field")
    return Record(offset_delta, timestamp_delta, key, value, headers), end


def peek_headers_count(payload: Buffer, position: int) -> int:
    """Return how many headers the record body at `position` declares, without decoding them."""
    _ensure_plain_attributes(payload[position])
    _, position = decode_varlong(payload, position + 1)
    _, position = decode_varint(payload, position)
    for _ in ("key", "value"):
        length, position = decode_varint(payload, position)
        position += max(0, length)
    count, _ = decode_varint(payload, position)
    return count


def absolute_timestamp(header: BatchHeader, delta_ms: int) -> int:
    """Return the timestamp in ms of a delta, wrapped to 64 bits as in other readers."""
    return (header.base_timestamp + delta_ms + 2**63) % 2**64 - 2**63


def _ensure_plain_attributes(attributes: int) -> None:
    """Refuse attributes of 0x80 and above: Kafka ignores them, other readers misread them."""
    if attributes & 0x80:
        raise InvalidRecord(f"a record has attributes {attributes:#04x}")


def _nullable(content: Buffer | None) -> tuple[Buffer, ...]:
    return (_NULL,) if content is None else (encode_varint(len(content)), content)


def _decode_nullable(body: memoryview, position: int) -> tuple[bytes | None, int]:
    """Return bytes or null; as in Kafka any negative length means null."""
    length, position = decode_varint(body, position)
    if length < 0:
        return None, position
    if length > len(body) - position:
        raise InvalidRecord(f"a field claims {length} of {len(body) - position} bytes left")
    return bytes(body[position : position + length]), position + length


def _decode_headers(body: memoryview, position: int) -> tuple[Headers, int]:
    count, position = decode_varint(body, position)
    if not 0 <= count <= len(body) - position:
        raise InvalidRecord(f"a record claims {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _decode_nullable(body, position)
        if name is None:
            raise InvalidRecord("the name of a header is null")
        content, position = _decode_nullable(body, position)
        headers.append((name.decode(errors="replace"), content))
    return headers, position
