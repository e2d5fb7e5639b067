"""Messages of magic 0 and 1, the formats before Kafka 0.11: read, never written.

    position  bytes  field
    0         8      offset      of the message; of the last one inside if there is a codec
    8         4      size        bytes after this field
    12        4      crc         CRC-32, not CRC-32C, of everything from `magic` on
    16        1      magic       0 or 1
    17        1      attributes  bits 0 to 2 codec; bit 3 timestamp type, magic 1 only
    18        8      timestamp   magic 1 only, ms; with a codec the greatest of those inside
    18 or 26  4, n   key         its length, -1 for null; then its bytes
    ...       4, n   value       its length, -1 for null; then its bytes

Each message is a batch. With a codec it is a wrapper: its decompressed value is a sequence of
messages without a codec. In magic 1 their offsets are relative, and the last one is the wrapper's;
in magic 0 they are absolute. Mirrors Kafka's `LegacyRecord` and `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from engine.errors import InvalidRecord
from engine.records.budget import DecodeBudget
from engine.records.compression import decompress
from engine.records.header import (
    MAGIC_2,
    MAGIC_POSITION,
    OLD_BODY_POSITIONS,
    BatchHeader,
    Codec,
    TimestampType,
    frame_size,
    parse_header,
)
from engine.records.record import Record

_INT32: Final = struct.Struct(">i")


def message_checksum(message: memoryview) -> int:
    """Return the correct CRC-32 of a message."""
    return zlib.crc32(message[MAGIC_POSITION:])


def message_records(
    message: memoryview,
    header: BatchHeader,
    limit_bytes: int,
    budget: DecodeBudget | None = None,
) -> list[Record]:
    """Return the one record of a message, or those in a wrapper; none of them has headers.

    A record of magic 0 has the timestamp -1; the append time of a wrapper applies to all its
    messages. Bytes after the value, or of an incomplete inner message, are ignored as in Kafka.
    Raises `InvalidRecord` for wrong content, otherwise as `decompress`.
    """
    if not is_wrapper(header):
        key, value = _key_and_value(message, header)
        return [Record(header.base_offset, header.max_timestamp, key, value, ())]
    content = _wrapped(message, header, limit_bytes, budget)
    inner = _inner_messages(content)
    offsets = _absolute_offsets(header, [message_header for _, message_header in inner])
    append_time = (
        header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    )
    records = []
    for offset, (position, message_header) in zip(offsets, inner, strict=True):
        key, value = _key_and_value(
            content[position : position + message_header.size_bytes], message_header
        )
        timestamp = message_header.max_timestamp
        if append_time is not None and message_header.magic:
            timestamp = append_time
        records.append(Record(offset, timestamp, key, value, ()))
    return records


def message_checksums(
    message: memoryview, header: BatchHeader, limit_bytes: int
) -> list[tuple[int, bool]]:
    """Return the checksum of a message, or of those in a wrapper, and whether it is correct.

    In the order of `message_records`; raises as it.
    """
    if not is_wrapper(header):
        return [(header.crc, header.crc == message_checksum(message))]
    content = _wrapped(message, header, limit_bytes)
    return [
        (inner.crc, inner.crc == message_checksum(content[at : at + inner.size_bytes]))
        for at, inner in _inner_messages(content)
    ]


def complete_header(message: memoryview, header: BatchHeader, limit_bytes: int) -> BatchHeader:
    """Return a message's header with base offset and count, which only its content tells.

    Raises as `message_records`.
    """
    if not is_wrapper(header):
        return header
    inner = [inner for _, inner in _inner_messages(_wrapped(message, header, limit_bytes))]
    base_offset = _absolute_offsets(header, inner)[0]
    return header._replace(
        base_offset=base_offset,
        last_offset_delta=header.last_offset - base_offset,
        records_count=len(inner),
    )


def is_wrapper(header: BatchHeader) -> bool:
    """Whether the value of this message holds messages."""
    return header.magic < MAGIC_2 and header.codec is not Codec.NONE


def _wrapped(
    message: memoryview,
    header: BatchHeader,
    limit_bytes: int,
    budget: DecodeBudget | None = None,
) -> memoryview:
    """Return the messages inside a wrapper, decompressed."""
    if header.codec is Codec.ZSTD:
        raise InvalidRecord(f"a message of magic {header.magic} cannot be compressed with zstd")
    start, end = _value_bounds(message, header)
    if start is None:
        raise InvalidRecord("a compressed message has a null value")
    # The first writers of LZ4 frames hashed the wrong bytes; they only wrote magic 0.
    return decompress(
        header.codec,
        message[start:end],
        limit_bytes,
        checks_lz4_hash=header.magic != 0,
        budget=budget,
    )


def _inner_messages(content: memoryview) -> list[tuple[int, BatchHeader]]:
    """Return position and header of the messages in a wrapper, at least one."""
    inner: list[tuple[int, BatchHeader]] = []
    position = 0
    while (size := frame_size(content, position)) is not None and size <= len(content) - position:
        header = parse_header(content, position)
        if header.magic == MAGIC_2 or is_wrapper(header):
            raise InvalidRecord(
                f"a compressed message holds a message of magic {header.magic}, codec bits "
                f"{header.attributes}"
            )
        inner.append((position, header))
        position += size
    if not inner:
        raise InvalidRecord("a compressed message holds no message")
    return inner


def _absolute_offsets(wrapper: BatchHeader, inner: list[BatchHeader]) -> list[int]:
    """Return the offsets of the messages in a wrapper, which ascend to the wrapper's offset."""
    added = wrapper.last_offset - inner[-1].base_offset if wrapper.magic else 0
    offsets = [added + header.base_offset for header in inner]
    previous = -1
    for offset in offsets:
        if not previous < offset <= wrapper.last_offset:
            raise InvalidRecord(
                f"a compressed message at offset {wrapper.last_offset} holds {offset} after "
                f"{previous}"
            )
        previous = offset
    return offsets


def _key_and_value(message: memoryview, header: BatchHeader) -> tuple[bytes | None, bytes | None]:
    key_start, key_end = _field_bounds(message, OLD_BODY_POSITIONS[header.magic])
    value_start, value_end = _field_bounds(message, key_end)
    return (
        None if key_start is None else bytes(message[key_start:key_end]),
        None if value_start is None else bytes(message[value_start:value_end]),
    )


def _value_bounds(message: memoryview, header: BatchHeader) -> tuple[int | None, int]:
    _, key_end = _field_bounds(message, OLD_BODY_POSITIONS[header.magic])
    return _field_bounds(message, key_end)


def _field_bounds(message: memoryview, position: int) -> tuple[int | None, int]:
    """Return the start of a key or value, None if it is null, and its end."""
    start = position + _INT32.size
    length = _INT32.unpack_from(message, position)[0] if start <= len(message) else 0
    if length < 0:
        return None, start
    if start + length > len(message):
        raise InvalidRecord(f"a field of {length} bytes does not fit into its message")
    return start, start + length
