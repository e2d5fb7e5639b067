"""The frames of record batches v2: parses their headers, and leaves their records alone.

The engine has the same format. It is repeated here because this package is installed alone on
Spark's executors.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

# base_offset, batch_length, leader_epoch, magic, crc, attributes, last_offset_delta,
# base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, records_count. This is
# a string and not a Struct, because module globals must be picklable: the package can be shipped by
# value. `struct` caches compiled formats.
HEADER: Final = ">qiibIhiqqqhii"
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
ATTRIBUTES_POSITION: Final = 21

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20

assert struct.calcsize(HEADER) == HEADER_BYTES, "record batch v2 overhead is fixed by the format"
assert struct.calcsize(">qiibI") == ATTRIBUTES_POSITION, "the checksum covers what follows it"


class FrameError(ValueError):
    """Bytes that are not a record batch v2; `offset` is the next one that was expected."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class BatchFrame(NamedTuple):
    """One whole batch in a buffer."""

    base_offset: int
    next_offset: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    records_count: int
    crc: int
    position: int
    payload_position: int
    end_position: int

    @property
    def codec(self) -> int:
        """Kafka's compression type: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction marker instead of records."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def has_append_time(self) -> bool:
        """Whether every record has the batch's maximum timestamp, set by the log."""
        return bool(self.attributes & LOG_APPEND_TIME_MASK)


def whole_batches(data: bytes | bytearray, expected_offset: int = 0) -> list[BatchFrame]:
    """Return the batches that are complete in `data`, without a partial one at its end.

    Raises FrameError for anything that is not a batch, or does not follow the previous one;
    `expected_offset` is for the error if the first one is not a batch.
    """
    frames: list[BatchFrame] = []
    position, size = 0, len(data)
    while position + HEADER_BYTES <= size:
        frame = _frame_at(data, position, frames[-1].next_offset if frames else expected_offset)
        if frame.end_position > size:
            break
        if frames and frame.base_offset < frames[-1].next_offset:
            raise FrameError("the batch begins before the previous one ends", frame.base_offset)
        frames.append(frame)
        position = frame.end_position
    return frames


def _frame_at(data: bytes | bytearray, position: int, expected_offset: int) -> BatchFrame:
    (
        base_offset,
        batch_length,
        _leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        _producer_id,
        _producer_epoch,
        _base_sequence,
        records_count,
    ) = struct.unpack_from(HEADER, data, position)
    if magic != 2:
        raise FrameError(f"message format {magic} is not record batch v2", expected_offset)
    if batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise FrameError(f"batch length {batch_length} is shorter than a header", expected_offset)
    if base_offset < 0 or last_offset_delta < 0 or records_count < 0:
        raise FrameError("a count or an offset in the header is negative", expected_offset)
    return BatchFrame(
        base_offset,
        base_offset + last_offset_delta + 1,
        attributes,
        base_timestamp,
        max_timestamp,
        records_count,
        crc,
        position,
        position + HEADER_BYTES,
        position + LOG_OVERHEAD_BYTES + batch_length,
    )


def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC-32C of the bytes.

    The import is late because it takes a fifth of the start of a Python process, and readers use it
    only if `checkCrcs` is set.
    """
    import crc32c as library  # noqa: PLC0415 -- slow to import

    checksum: int = library.crc32c(data)
    return checksum
