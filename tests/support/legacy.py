"""Messages of magic 0 and 1, which nothing here writes but the tests."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from engine.records.compression import compress
from engine.records.header import Codec
from tests.support.time import START_MS

CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
"""Those that the old formats know."""

LOG_APPEND_TIME = 0x08
"""The attribute bit of magic 1."""


def legacy_message(
    offset: int,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    *,
    magic: int = 1,
    timestamp: int = START_MS,
    attributes: int = 0,
) -> bytes:
    """One message as brokers before 0.11 stored it, with its checksum."""
    time = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bB", magic, attributes) + time + _field(key) + _field(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def legacy_wrapper(
    first_offset: int,
    values: Sequence[bytes],
    *,
    magic: int = 1,
    codec: Codec = Codec.GZIP,
    timestamp: int = START_MS,
    append_time: bool = False,
) -> bytes:
    """A compressed message that holds others, a millisecond apart; `timestamp` is the first's."""
    inner = b"".join(
        legacy_message(
            index + (0 if magic else first_offset),
            b"key",
            value,
            magic=magic,
            timestamp=timestamp + index,
        )
        for index, value in enumerate(values)
    )
    last = len(values) - 1
    return legacy_message(
        first_offset + last,
        None,
        compress(codec, inner),
        magic=magic,
        timestamp=timestamp + last,
        attributes=codec | (LOG_APPEND_TIME if append_time else 0),
    )


def _field(content: bytes | None) -> bytes:
    if content is None:
        return struct.pack(">i", -1)
    return struct.pack(">i", len(content)) + content
