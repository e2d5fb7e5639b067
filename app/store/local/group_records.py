"""The records of `__consumer_offsets`: one cursor as a key and a value, in Kafka's own schemas.

    key    int16 version (0, 1), string group, string topic, int32 partition
    value  int16 version (0 to 4), int64 offset, [3+] int32 leader epoch, string metadata,
           int64 commit time in ms, [1] int64 expiry time in ms

A string is an int16 length and UTF-8; from value version 4 on an unsigned varint of length + 1, and
tagged fields follow the last one. Keys of higher versions (2 is the membership of a classic group)
belong to the broker that wrote them. Mirrors Kafka's `OffsetCommitKey`, `LegacyOffsetCommitKey` and
`OffsetCommitValue`; written are key 1 and value 3, which every broker since 2.1 reads.
"""

from __future__ import annotations

import struct
from typing import Final

from app.store.groups import CursorKey, CursorValue
from engine.types import INT32_MAX, NO_LEADER_EPOCH

KEY_VERSION: Final = 1
KEY_VERSIONS: Final = range(2)
VALUE_VERSION: Final = 3
VALUE_VERSIONS: Final = range(5)
FIRST_WITH_EPOCH: Final = 3
FIRST_FLEXIBLE: Final = 4

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class UnreadableCursor(ValueError):
    """A record of the offsets topic that matches no version of its schema."""


def encode_key(key: CursorKey) -> bytes:
    """Return the key of an offset's record; each string has at most 32,767 bytes."""
    return b"".join(
        (
            _INT16.pack(KEY_VERSION),
            _string(key.group),
            _string(key.topic),
            _INT32.pack(key.partition),
        )
    )


def encode_value(value: CursorValue) -> bytes:
    """Return the value of an offset's record; the metadata has at most 32,767 bytes."""
    return b"".join(
        (
            _INT16.pack(VALUE_VERSION),
            _INT64.pack(value.offset),
            _INT32.pack(value.leader_epoch),
            _string(value.metadata),
            _INT64.pack(value.commit_timestamp),
        )
    )


def decode_key(content: bytes) -> CursorKey | None:
    """Return the offset that a key belongs to; None for a broker's other records.

    Raises UnreadableCursor.
    """
    fields = _Fields(content)
    if fields.number(_INT16) not in KEY_VERSIONS:
        return None
    return CursorKey(fields.string(), fields.string(), fields.number(_INT32))


def decode_value(content: bytes) -> CursorValue:
    """Return the offset that a value stores; raises UnreadableCursor."""
    fields = _Fields(content)
    version = fields.number(_INT16)
    if version not in VALUE_VERSIONS:
        raise UnreadableCursor(f"unknown version {version} of a cursor")
    offset = fields.number(_INT64)
    epoch = fields.number(_INT32) if version >= FIRST_WITH_EPOCH else NO_LEADER_EPOCH
    metadata = fields.compact_string() if version >= FIRST_FLEXIBLE else fields.string()
    return CursorValue(offset, epoch, metadata, fields.number(_INT64))


def partition_of_group(group: str, partitions: int) -> int:
    """Return the partition of a group: `Utils.abs(group.hashCode()) % partitions`, as in Kafka."""
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", group.encode("utf-16-be", "surrogatepass")):
        hashed = (hashed * 31 + unit) & 0xFFFF_FFFF
    signed = hashed - 2**32 if hashed > INT32_MAX else hashed
    return 0 if signed == -(2**31) else abs(signed) % partitions


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


class _Fields:
    """Reads the fields of a record in order."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def number(self, kind: struct.Struct) -> int:
        number: int = kind.unpack(self._take(kind.size))[0]
        return number

    def string(self) -> str:
        return self._text(self.number(_INT16))

    def compact_string(self) -> str:
        size = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                return self._text(size - 1)
        raise UnreadableCursor("the length of a string of a cursor is not terminated")

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise UnreadableCursor("a string of a cursor is not UTF-8") from None

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise UnreadableCursor("a cursor ends inside one of its fields")
        taken = self._content[self._position : end]
        self._position = end
        return taken
