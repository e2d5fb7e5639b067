"""One record batch, read and stamped in place; Kafka's `DefaultRecordBatch`.

Messages of magic 0 and 1 are batches too, to be read and not to be stamped.

What a leader changes in a batch it accepts are a few header fields. Base offset and leader epoch
are outside the checksum, so stamping them costs two stores; timestamp type and maximum are inside
it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from engine.errors import CorruptBatch, UnsupportedMagic
from engine.records.budget import DecodeBudget
from engine.records.checksum import crc32c
from engine.records.compiled import DECODING_ERRORS, CompiledRecord, iterate
from engine.records.compression import (
    DEFAULT_DECOMPRESSED_LIMIT_BYTES,
    content_bound,
    decompress,
)
from engine.records.header import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_BYTES,
    MAGIC_2,
    MAX_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Codec,
    TimestampType,
    parse_header,
)
from engine.records.legacy import complete_header, message_checksum, message_records
from engine.records.record import Record, decode_records
from engine.types import Buffer

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
OFFSET_LENGTH_EPOCH: Final = struct.Struct(">qii")
_KNOWN_ATTRIBUTES: Final = 0x7F


class BatchView:
    """One complete batch in a buffer that somebody else owns; nothing is copied until asked for.

    Raises `CorruptBatch` if the buffer ends before the batch does, or as `parse_header`. The header
    is the one at the time of construction: stamps made later show in the bytes only.
    """

    __slots__ = ("buffer", "header")

    header: BatchHeader
    buffer: memoryview
    """Exactly this batch."""

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.header = parse_header(buffer, position)
        end = position + self.header.size_bytes
        if end > len(buffer):
            raise CorruptBatch(
                f"batch of {self.header.size_bytes} bytes at {position} ends after {len(buffer)}",
                position=position,
            )
        self.buffer = memoryview(buffer)[position:end]

    @property
    def payload(self) -> memoryview:
        """What follows a header of magic 2: the records, compressed if there is a codec."""
        return self.buffer[HEADER_BYTES:]

    def ensure_intact(self) -> None:
        """Raise `CorruptBatch` unless the checksum stored is the checksum computed."""
        if self.header.magic == MAGIC_2:
            computed = crc32c(self.buffer[ATTRIBUTES_POSITION:])
        else:
            computed = message_checksum(self.buffer)
        if computed != self.header.crc:
            raise CorruptBatch(
                f"batch at offset {self.header.base_offset}: checksum {self.header.crc:#010x} "
                f"is stored, {computed:#010x} computed",
                base_offset=self.header.base_offset,
                stored_crc=self.header.crc,
                computed_crc=computed,
            )

    def complete_header(
        self, *, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES
    ) -> BatchHeader:
        """Return the header with its true base offset and count, in any format.

        Only a compressed message of magic 0 or 1 has to be decompressed for that. Raises as
        `records`.
        """
        if self.header.magic == MAGIC_2:
            return self.header
        return complete_header(self.buffer, self.header, limit_bytes)

    def content_bound(self, limit_bytes: int) -> int:
        """Return the most bytes that decoding it can yield, at most `limit_bytes` of a codec."""
        codec = self.header.codec
        if codec is Codec.NONE:
            return self.header.size_bytes
        if self.header.magic != MAGIC_2:
            return limit_bytes
        return content_bound(codec, self.payload, limit_bytes)

    def uncompressed(
        self,
        *,
        limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES,
        budget: DecodeBudget | None = None,
    ) -> memoryview:
        """Return the record stream, never more than `limit_bytes`; without a codec it is a view.

        Raises `CorruptBatch` for damage, `TooLarge` beyond the limit and `DecodeBudgetSpent` beyond
        the budget, having allocated no more; `UnsupportedMagic` before magic 2, where records are
        no stream of their own.
        """
        if self.header.magic != MAGIC_2:
            magic = self.header.magic
            raise UnsupportedMagic(f"a batch of magic {magic} has no such records", magic=magic)
        codec = self.header.codec
        if codec is Codec.NONE:
            return self.payload
        return decompress(codec, self.payload, limit_bytes, budget=budget)

    def compiled_records(
        self, *, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES
    ) -> Iterator[CompiledRecord]:
        """Yield the records as the compiled codec makes them, for code that handles millions.

        Their attributes are those of `Record`. Wrong content raises one of `DECODING_ERRORS`, or
        passes where `check` would not let it: this is for batches checked on their way in. Raises
        as `uncompressed`.
        """
        if self.header.records_count == 0:
            return iter(())
        payload = self.uncompressed(limit_bytes=limit_bytes)
        return iterate(self.buffer, payload, self.header.records_count)

    def records(
        self,
        *,
        limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES,
        budget: DecodeBudget | None = None,
    ) -> Iterator[Record]:
        """Yield the records one by one, those of a control batch too.

        Raises `InvalidRecord` where the content is not what the header says or no record can be
        read, as Kafka's reader would; otherwise as `uncompressed`, before the first record.
        """
        if self.header.magic != MAGIC_2:
            yield from message_records(self.buffer, self.header, limit_bytes, budget)
            return
        if self.header.records_count == 0:
            return
        payload = self.uncompressed(limit_bytes=limit_bytes, budget=budget)
        yielded = 0
        try:
            for record in iterate(self.buffer, payload, self.header.records_count):
                yield Record(
                    record.offset, record.timestamp, record.key, record.value, record.headers
                )
                yielded += 1
        except DECODING_ERRORS:
            pass  # ask the referee, who either goes on from here or says what is wrong
        else:
            return
        for index, strict in enumerate(decode_records(payload, self.header)):
            if index >= yielded:
                yield strict


def stamp_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Stamp both fields that every append stamps, in one store; the length between them stays."""
    _, length, _ = OFFSET_LENGTH_EPOCH.unpack_from(buffer, position)
    OFFSET_LENGTH_EPOCH.pack_into(buffer, position, base_offset, length, leader_epoch)


def stamp_max_timestamp(
    buffer: bytearray | memoryview,
    position: int,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> None:
    """Give the batch its timestamp type and maximum, and a new checksum if that changes anything.

    With `LOG_APPEND_TIME` the maximum becomes the time of every record. The base timestamp and the
    deltas stay, and so does a compressed payload. As Kafka's `setMaxTimestamp`, attribute bits that
    have no meaning are dropped when the attributes are written again.
    """
    header = parse_header(buffer, position)
    if header.timestamp_type is timestamp_type and header.max_timestamp == max_timestamp:
        return
    attributes = header.attributes & _KNOWN_ATTRIBUTES & ~TIMESTAMP_TYPE_MASK
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_MASK
    _INT16.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    stamp_crc(buffer, position, header.size_bytes)


def stamp_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Compute and store the checksum of the batch of that size at `position`."""
    covered = memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size_bytes]
    _UINT32.pack_into(buffer, position + CRC_POSITION, crc32c(covered))
