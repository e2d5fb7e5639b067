"""The 61-byte header of a record batch of magic 2, as a table and as a value.

    position  bytes  field               in the checksum
    0         8      base_offset         no: stamped on arrival, kept by compaction
    8         4      length              no: bytes after this field, total size - 12
    12        4      leader_epoch        no: stamped on arrival, -1 from a producer
    16        1      magic               no
    17        4      crc                 -  CRC-32C of everything from `attributes` on
    21        2      attributes          yes
    23        4      last_offset_delta   yes, kept by compaction; the last sequence's delta too
    27        8      base_timestamp      yes; the delete horizon if attribute bit 6 is set
    35        8      max_timestamp       yes; the append time of all records if bit 3 is set
    43        8      producer_id         yes
    51        2      producer_epoch      yes
    53        4      base_sequence       yes
    57        4      records_count       yes; 0 in a batch that compaction emptied
    61        n      records             yes; one compressed blob if a codec is set

Offset, length and magic have the same position in older formats, so that any batch can be framed;
their other fields, see `legacy`, are converted to those of magic 2. Mirrors Kafka's
`DefaultRecordBatch`. `docs/formats/record-batch.md` describes the format.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from engine.errors import CorruptBatch, UnsupportedCompression
from engine.types import (
    INT32_MAX,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
)

HEADER: Final = struct.Struct(
    ">"
    "q"  # base_offset
    "i"  # length
    "i"  # leader_epoch
    "b"  # magic
    "I"  # crc
    "h"  # attributes
    "i"  # last_offset_delta
    "q"  # base_timestamp
    "q"  # max_timestamp
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # base_sequence
    "i"  # records_count
)
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12  # the bytes that `length` does not count
MAGIC_2: Final = 2
MIN_LENGTH: Final = 14  # of any format: Kafka's LegacyRecord.RECORD_OVERHEAD_V0
MIN_LENGTH_V2: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES

LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
LAST_OFFSET_DELTA_POSITION: Final = 23
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
RECORDS_COUNT_POSITION: Final = 57
UP_TO_MAGIC_BYTES: Final = MAGIC_POSITION + 1  # enough to frame a batch of any format

assert HEADER.size == HEADER_BYTES, "the overhead of a v2 batch is fixed by the wire format"
assert struct.calcsize(">qi") == LEADER_EPOCH_POSITION == LOG_OVERHEAD_BYTES
assert struct.calcsize(">qiib") == CRC_POSITION == UP_TO_MAGIC_BYTES
assert CRC_POSITION + 4 == ATTRIBUTES_POSITION, "the checksum covers what follows it"
assert struct.calcsize(">qiibIhiqq") == PRODUCER_ID_POSITION
assert struct.calcsize(">qiibIhiqqqhi") == RECORDS_COUNT_POSITION
assert RECORDS_COUNT_POSITION + 4 == HEADER_BYTES

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

_FRAME: Final = struct.Struct(">qiib")  # base_offset, length, leader_epoch or crc, magic

_OLD_HEADER: Final = struct.Struct(">qiIbB")  # offset, size, crc, magic, attributes
_OLD_TIMESTAMP: Final = struct.Struct(">q")  # follows in magic 1
_OLD_ATTRIBUTES_MASKS: Final = (CODEC_MASK, CODEC_MASK | TIMESTAMP_TYPE_MASK)
OLD_BODY_POSITIONS: Final = (_OLD_HEADER.size, _OLD_HEADER.size + _OLD_TIMESTAMP.size)
"""Where the key begins in a message of magic 0 and of magic 1."""
OLD_LENGTHS_BYTES: Final = 8  # the lengths of key and value, in every message
UNKNOWN_COUNT: Final = -1
"""The `records_count` of a compressed message of magic 0 or 1, which only its content tells."""

assert OLD_BODY_POSITIONS[0] + OLD_LENGTHS_BYTES - LOG_OVERHEAD_BYTES == MIN_LENGTH


@enum.unique
class Codec(enum.IntEnum):
    """How the records of a batch are compressed: attribute bits 0 to 2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name that Kafka's `compression.type` uses."""
        return self.name.lower()

    @classmethod
    def of_label(cls, label: str) -> Codec:
        """Return the codec with that lower-case name; raise `UnsupportedCompression` if unknown."""
        codec = _CODEC_BY_LABEL.get(label)
        if codec is None:
            raise UnsupportedCompression(f"unknown codec {label!r}", codec=label)
        return codec


_CODEC_BY_LABEL: Final = {codec.label: codec for codec in Codec}
_CODEC_BY_BITS: Final = tuple(Codec)


@enum.unique
class TimestampType(enum.IntEnum):
    """The source of a batch's timestamps: attribute bit 3."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fields of one batch header, as they are stored.

    A message of magic 0 or 1 stores one offset, that of its last record if it is compressed. It is
    used as base and last offset until `legacy.complete_header` has read the content.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last offset, wrapped at 31 bits; -1 without a base sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> Codec:
        """The codec; raises `UnsupportedCompression` for the three bit patterns without one."""
        bits = self.attributes & CODEC_MASK
        if bits >= len(_CODEC_BY_BITS):
            raise UnsupportedCompression(f"codec bits {bits} have no meaning", codec=str(bits))
        return _CODEC_BY_BITS[bits]

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_MASK)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


assert len(BatchHeader._fields) == len(HEADER.unpack(bytes(HEADER_BYTES)))


def frame_size(buffer: Buffer, position: int = 0) -> int | None:
    """Return the size in bytes that the batch at `position` declares, in any format, or None.

    None means that fewer than 17 bytes are left, too few to read the size. The batch may still be
    incomplete: compare the size with the bytes that are left. Raises `CorruptBatch` for a length
    below 14 or a magic outside 0 to 2, as Kafka's `ByteBufferLogInputStream`; the zeros of a
    preallocated tail are such a length.
    """
    if len(buffer) - position < UP_TO_MAGIC_BYTES:
        return None
    _, length, _, magic = _FRAME.unpack_from(buffer, position)
    if length < MIN_LENGTH:
        raise CorruptBatch(
            f"batch at byte {position} claims {length} bytes, less than any batch has",
            position=position,
        )
    if not 0 <= magic <= MAGIC_2:
        raise CorruptBatch(f"batch at byte {position} has magic {magic}", position=position)
    return int(length) + LOG_OVERHEAD_BYTES


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header at `position`; only its framing is checked.

    `BatchView` checks the checksum and the presence of the records. Raises `CorruptBatch` if the
    magic is unknown, or if fewer bytes are left, or declared, than a header of its format has.
    """
    if len(buffer) - position >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        if header.magic == MAGIC_2 and header.length >= MIN_LENGTH_V2:
            return header
    return _parse_old_header(buffer, position)


def _parse_old_header(buffer: Buffer, position: int) -> BatchHeader:
    """Parse the header of a message of magic 0 or 1 at `position`; raise if there is none."""
    left = len(buffer) - position
    magic = MAGIC_2 if frame_size(buffer, position) is None else buffer[position + MAGIC_POSITION]
    needed = HEADER_BYTES if magic == MAGIC_2 else OLD_BODY_POSITIONS[magic]
    if magic == MAGIC_2 or left < needed:
        raise CorruptBatch(
            f"batch at byte {position} is too short for a header of {needed} bytes",
            position=position,
        )
    offset, length, crc, _, attributes = _OLD_HEADER.unpack_from(buffer, position)
    if length + LOG_OVERHEAD_BYTES < needed + OLD_LENGTHS_BYTES:
        raise CorruptBatch(
            f"batch at byte {position} of magic {magic} claims {length} bytes", position=position
        )
    attributes &= _OLD_ATTRIBUTES_MASKS[magic]
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = _OLD_TIMESTAMP.unpack_from(buffer, position + _OLD_HEADER.size)
    return BatchHeader(
        base_offset=offset,
        length=length,
        leader_epoch=NO_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=UNKNOWN_COUNT if attributes & CODEC_MASK else 1,
    )


def pack_header(header: BatchHeader) -> bytes:
    """Return the 61 bytes of a header of magic 2, including its checksum field."""
    return HEADER.pack(*header)


def increment_sequence(sequence: int, increment: int) -> int:
    """Return the sequence `increment` steps later; 0 follows 2**31 - 1."""
    if sequence > INT32_MAX - increment:
        return increment - (INT32_MAX - sequence) - 1
    return sequence + increment


def decrement_sequence(sequence: int, decrement: int) -> int:
    """Return the sequence `decrement` steps earlier; 2**31 - 1 precedes 0."""
    if sequence < decrement:
        return INT32_MAX - (decrement - sequence) + 1
    return sequence - decrement
