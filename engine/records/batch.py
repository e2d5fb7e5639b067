"""One record batch, read and stamped in place; Kafka's `DefaultRecordBatch`.

Messages of magic 0 and 1 are batches too, but can only be read.

A leader changes a few header fields of a batch that it accepts. The checksum does not cover base
offset and leader epoch, so stamping them is cheap; it does cover timestamp type and maximum.
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
    """A view of one complete batch in the caller's buffer; copies nothing by itself.

    Raises `CorruptBatch` if the buffer ends before the batch does, or as `parse_header`. The header
    is parsed once, at construction at the latest: later stamps only change the bytes.
    """

    __slots__ = ("buffer", "header")

    header: BatchHeader
    buffer: memoryview
    """The bytes of this batch only."""

    def __init__(
        self, buffer: Buffer, position: int = 0, header: BatchHeader | None = None
    ) -> None:
        """`header` is that of the batch, if the caller has parsed it."""
        self.header = header or parse_header(buffer, position)
        end = position + self.header.size_bytes
        if end > len(buffer):
            raise CorruptBatch(
                f"batch of {self.header.size_bytes} bytes at {position} ends after {len(buffer)}",
                position=position,
            )
        self.buffer = memoryview(buffer)[position:end]

    @property
    def payload(self) -> memoryview:
        """The bytes after a header of magic 2: the records, compressed if the batch has a codec."""
        return self.buffer[HEADER_BYTES:]

    def ensure_intact(self) -> None:
        """Raise `CorruptBatch` unless the stored checksum is correct."""
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

        Only compressed messages of magic 0 or 1 are decompressed for that. Raises as `records`.
        """
        if self.header.magic == MAGIC_2:
            return self.header
        return complete_header(self.buffer, self.header, limit_bytes)

    def content_bound(self, limit_bytes: int) -> int:
        """Return an upper bound of the decoded bytes; at most `limit_bytes` if it has a codec."""
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
        """Return the record stream, at most `limit_bytes`; without a codec it is a view.

        Raises `CorruptBatch` for damage, `TooLarge` beyond the limit and `DecodeBudgetSpent` beyond
        the budget, without allocating more; `UnsupportedMagic` below magic 2, which has no record
        stream.
        """
        if self.header.magic != MAGIC_2:
            magic = self.header.magic
            raise UnsupportedMagic(f"a batch of magic {magic} has no record stream", magic=magic)
        codec = self.header.codec
        if codec is Codec.NONE:
            return self.payload
        return decompress(codec, self.payload, limit_bytes, budget=budget)

    def compiled_records(
        self, *, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES
    ) -> Iterator[CompiledRecord]:
        """Yield the records of the compiled codec, for code that handles millions.

        Their attributes are those of `Record`. Malformed content raises one of `DECODING_ERRORS`,
        or is decoded although `check` would refuse it: use it for batches that were checked. Raises
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
        """Yield the records one by one, also of a control batch.

        Raises `InvalidRecord` where the content contradicts the header or a record is malformed, as
        Kafka's reader does; otherwise as `uncompressed`, before the first record.
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
            pass  # the plain decoder continues from here, or says what is wrong
        else:
            return
        for index, strict in enumerate(decode_records(payload, self.header)):
            if index >= yielded:
                yield strict


def stamp_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Stamp base offset and leader epoch in one store; the length between them stays."""
    _, length, _ = OFFSET_LENGTH_EPOCH.unpack_from(buffer, position)
    OFFSET_LENGTH_EPOCH.pack_into(buffer, position, base_offset, length, leader_epoch)


def stamp_max_timestamp(
    buffer: bytearray | memoryview,
    position: int,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> None:
    """Set timestamp type and maximum of the batch, and its checksum if they changed.

    With `LOG_APPEND_TIME` the maximum is the time of every record. Base timestamp, deltas and a
    compressed payload stay as they are. Like Kafka's `setMaxTimestamp`, it clears undefined
    attribute bits when it writes the attributes.
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
