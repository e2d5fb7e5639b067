"""Decodes record batches into Arrow RecordBatches.

Batches are decoded in groups, so that NumPy works on many records at once; an answer of the usual
size is one group. The RecordBatches for Spark are smaller, about 10,000 records or 1 MiB, so that
they stay in the processor's caches.

Memory is bounded: a batch of 12 KB can expand to 400 MB, so no batch can allocate more than
`limit_bytes`. The codecs are Kafka's: gzip, snappy (raw, and in the blocks of xerial's
`SnappyOutputStream` that Java writes), lz4 frames, zstd.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import cramjam
import numpy as np
import pyarrow as pa

from pyspark_tidelog.errors import DamagedBatchError
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.records.batches import (
    ATTRIBUTES_POSITION,
    BatchFrame,
    FrameError,
    crc32c,
    whole_batches,
)
from pyspark_tidelog.records.columns import ColumnBuilder
from pyspark_tidelog.records.fields import RecordFields, locate_records
from pyspark_tidelog.records.varints import RecordError

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


MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 1 << 20
"""The limits of one RecordBatch."""

GROUP_ROWS: Final = 60_000
GROUP_BYTES: Final = 8 << 20
"""The limits of a group. Compressed batches count three times, because they are held as often."""


class Decoder:
    """Decodes the answers to one offset range; `end_offset` is exclusive. Not thread-safe."""

    def __init__(
        self,
        log: TopicPartition,
        columns: Sequence[str],
        end_offset: int,
        *,
        check_crcs: bool = False,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self._log = log
        self._end_offset = end_offset
        self._builder = ColumnBuilder(log, columns)
        self._check_crcs = check_crcs
        self._decompressor = Decompressor(limit_bytes)

    def frames(self, data: bytes | bytearray, expected_offset: int) -> list[BatchFrame]:
        """Return the whole batches of an answer; raise DamagedBatchError for anything else."""
        try:
            return whole_batches(data, expected_offset)
        except FrameError as error:
            raise self._damage(error.offset, str(error)) from error

    def decode(
        self, data: bytes | bytearray, frames: Sequence[BatchFrame], start_offset: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of the batches, in order, as RecordBatches of bounded size.

        Leaves out control batches and records outside the range from `start_offset` to the end
        offset, so records that an earlier answer held are not repeated. Raises DamagedBatchError,
        which names the batch.
        """
        frames = [frame for frame in frames if frame.next_offset > start_offset]
        for group in self._groups(data, frames):
            payload, records = self._locate(data, group)
            for piece in _pieces(self._only_wanted(records, start_offset)):
                yield self._build(payload, piece)

    def _groups(
        self, data: bytes | bytearray, frames: Sequence[BatchFrame]
    ) -> Iterator[list[_Batch]]:
        """Collect decompressed batches until a group is full."""
        group: list[_Batch] = []
        rows = size_bytes = 0
        for frame in frames:
            if frame.is_control or frame.records_count == 0:
                continue
            if frame.base_offset >= self._end_offset:
                break
            batch = self._open(data, frame)
            group.append(batch)
            rows += frame.records_count
            size_bytes += batch.size_bytes * (1 if batch.records is None else 3)
            if rows >= GROUP_ROWS or size_bytes >= GROUP_BYTES:
                yield group
                group, rows, size_bytes = [], 0, 0
        if group:
            yield group

    def _open(self, data: bytes | bytearray, frame: BatchFrame) -> _Batch:
        """Verify the checksum if that is enabled, and decompress the batch if it is compressed."""
        view = memoryview(data)
        if self._check_crcs:
            computed = crc32c(view[frame.position + ATTRIBUTES_POSITION : frame.end_position])
            if computed != frame.crc:
                raise self._damage(
                    frame.base_offset, f"crc {frame.crc:#010x} stored, {computed:#010x} computed"
                )
        if not frame.codec:
            return _Batch(frame, None)
        compressed = view[frame.payload_position : frame.end_position]
        try:
            return _Batch(frame, self._decompressor.decompress(frame.codec, compressed))
        except CompressionError as error:
            raise self._damage(frame.base_offset, str(error)) from error

    def _locate(
        self, data: bytes | bytearray, group: list[_Batch]
    ) -> tuple[bytes | bytearray, RecordFields]:
        payload, places = _joined(data, group)
        try:
            frames = [batch.frame for batch in group]
            return payload, locate_records(payload, frames, places)
        except RecordError as error:
            if len(group) == 1:
                raise self._damage(group[0].frame.base_offset, str(error)) from error
        # Decode the batches one at a time to find the damaged one.
        for batch in group:
            self._locate(data, [batch])
        raise self._damage(group[0].frame.base_offset, "the batches are inconsistent")

    def _only_wanted(self, records: RecordFields, start_offset: int) -> RecordFields:
        offsets, end_offset = records.offsets, self._end_offset
        if offsets[0] >= start_offset and offsets[-1] < end_offset:
            return records
        chosen = (offsets >= start_offset) & (offsets < end_offset)
        return records.select(np.flatnonzero(chosen))

    def _build(self, payload: bytes | bytearray, records: RecordFields) -> pa.RecordBatch:
        try:
            return self._builder.build(payload, records)
        except RecordError as error:
            raise self._damage(int(records.offsets[0]), str(error)) from error

    def _damage(self, offset: int, reason: str) -> DamagedBatchError:
        return DamagedBatchError(
            f"damaged batch in {self._log.described}, at offset {offset}: {reason}"
        )


class _Batch(NamedTuple):
    """A batch and its decompressed records; None if they are uncompressed in the answer."""

    frame: BatchFrame
    records: bytes | None

    @property
    def size_bytes(self) -> int:
        """The size of the uncompressed records."""
        if self.records is not None:
            return len(self.records)
        return self.frame.end_position - self.frame.payload_position


def _joined(
    data: bytes | bytearray, group: Sequence[_Batch]
) -> tuple[bytes | bytearray, list[tuple[int, int]]]:
    """Return one buffer with the uncompressed records, and the position of each batch in it."""
    if all(batch.records is None for batch in group):
        return data, [(b.frame.payload_position, b.frame.end_position) for b in group]
    view = memoryview(data)
    parts = [
        view[b.frame.payload_position : b.frame.end_position] if b.records is None else b.records
        for b in group
    ]
    cuts = accumulate((batch.size_bytes for batch in group), initial=0)
    return b"".join(parts), list(pairwise(cuts))


def _pieces(records: RecordFields) -> Iterator[RecordFields]:
    """Cut records into pieces within the limits of one RecordBatch."""
    rows = len(records)
    if rows == 0:
        return
    size_bytes = int(records.ends[-1] - records.begins[0])
    count = max(-(-rows // MAX_ROWS), min(rows, size_bytes // MAX_BYTES))
    if count <= 1:
        yield records
        return
    cuts = [rows * index // count for index in range(count + 1)]
    for start, end in pairwise(cuts):
        yield records.select(slice(start, end))
