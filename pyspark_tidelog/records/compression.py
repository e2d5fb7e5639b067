"""Decompresses record batches with bounded memory: a batch of 12 KB can expand to 400 MB.

The codecs are Kafka's: gzip, snappy (raw, and in the blocks of xerial's `SnappyOutputStream` that
Java writes), lz4 frames, zstd. No batch can allocate more than `limit_bytes`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam
import numpy as np

# The limit of one decompressed batch. Kafka limits only compressed batches, to about 1 MiB.
DEFAULT_LIMIT_BYTES: Final = 128 << 20

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16

_FIRST_CAPACITY_BYTES: Final = 1 << 20


class CompressionError(ValueError):
    """Bytes that cannot be decompressed, or would exceed the limit."""


class Decompressor:
    """Decompresses batches through one scratch buffer, which grows as needed. Not thread-safe."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._scratch = np.empty(min(_FIRST_CAPACITY_BYTES, limit_bytes), np.uint8)

    def decompress(self, codec: int, data: memoryview) -> bytes:
        """Return a copy of the decompressed bytes; raise CompressionError if they are damaged."""
        if codec == 2:
            return self._snappy(data)
        into = _STREAMS.get(codec)
        if into is None:
            raise CompressionError(f"compression {codec} does not exist")
        return self._stream(into, data)

    def _stream(self, into: Callable[[Any, Any], int], data: memoryview) -> bytes:
        """Decompress a codec that does not store the size: grow the buffer until it fits."""
        while True:
            try:
                count = into(data, self._scratch.data)
            except cramjam.DecompressionError as error:
                # The error is the same for a full buffer and for damaged bytes, so damaged bytes
                # cost a few more attempts.
                if len(self._scratch) >= self._limit_bytes:
                    raise CompressionError(
                        f"damaged, or more than {self._limit_bytes} bytes: {error}"
                    ) from error
                self._make_room(len(self._scratch) * 4)
            else:
                return self._scratch[:count].tobytes()

    def _snappy(self, data: memoryview) -> bytes:
        if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
            return self._scratch[: self._snappy_block(data, 0)].tobytes()
        position, written = _XERIAL_HEADER_BYTES, 0
        while position < len(data):
            if position + 4 > len(data):
                raise CompressionError("snappy ends inside a block's length")
            (length,) = struct.unpack_from(">i", data, position)
            position += 4
            if not 0 <= length <= len(data) - position:
                raise CompressionError(f"snappy block of {length} bytes extends beyond the batch")
            written += self._snappy_block(data[position : position + length], written)
            position += length
        return self._scratch[:written].tobytes()

    def _snappy_block(self, block: memoryview, written: int) -> int:
        """Decompress one block into the scratch buffer at `written`; return its size."""
        try:
            needed = written + cramjam.snappy.decompress_raw_len(block)
            if needed > self._limit_bytes:
                raise CompressionError(f"more than {self._limit_bytes} bytes")
            if needed > len(self._scratch):
                self._make_room(max(needed, 2 * len(self._scratch)), keep=written)
            room = self._scratch.data[written:needed]
            return int(cramjam.snappy.decompress_raw_into(block, room))
        except cramjam.DecompressionError as error:
            raise CompressionError(str(error)) from error

    def _make_room(self, capacity: int, *, keep: int = 0) -> None:
        kept = self._scratch[:keep]
        self._scratch = np.empty(min(capacity, self._limit_bytes), np.uint8)
        self._scratch[:keep] = kept


_STREAMS: Final[dict[int, Callable[[Any, Any], int]]] = {
    1: cramjam.gzip.decompress_into,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
