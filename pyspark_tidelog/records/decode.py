"""Raw record batches in, Arrow RecordBatches out.

Two sizes matter. Batches are located in groups, enough of them to be walked abreast: an answer of
the usual size is one group. What is handed to Spark is smaller, about 10,000 records or 1 MiB, so
that it stays in the caches of either side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_tidelog.errors import DamagedBatchError
from pyspark_tidelog.positions import TopicPartition
from pyspark_tidelog.records.batches import (
    ATTRIBUTES_POSITION,
    BatchFrame,
    FrameError,
    whole_batches,
)
from pyspark_tidelog.records.checksums import crc32c
from pyspark_tidelog.records.columns import ColumnBuilder
from pyspark_tidelog.records.compression import DEFAULT_LIMIT_BYTES, CompressionError, Decompressor
from pyspark_tidelog.records.fields import RecordFields, locate_records
from pyspark_tidelog.records.varints import RecordError

MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 1 << 20
"""Of one RecordBatch, with the rows."""

GROUP_ROWS: Final = 60_000
GROUP_BYTES: Final = 8 << 20
"""Of batches located together; compressed ones count three times, for so often they are held."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets wanted of one log; `end_offset` is exclusive."""

    log: TopicPartition
    start_offset: int
    end_offset: int


class Decoder:
    """Decodes the answers to one range. Not thread-safe."""

    def __init__(
        self,
        wanted: OffsetRange,
        columns: Sequence[str],
        *,
        check_crcs: bool = False,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self._wanted = wanted
        self._builder = ColumnBuilder(wanted.log, columns)
        self._check_crcs = check_crcs
        self._decompressor = Decompressor(limit_bytes)

    def frames(self, data: bytes | bytearray, expected_offset: int) -> list[BatchFrame]:
        """Return the whole batches in an answer; raise DamagedBatchError for other bytes."""
        try:
            return whole_batches(data, expected_offset)
        except FrameError as error:
            raise self._damage(error.offset, str(error)) from error

    def decode(
        self, data: bytes | bytearray, frames: Sequence[BatchFrame], start_offset: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the wanted records of the batches, in order, as RecordBatches of bounded size.

        Records before `start_offset`, at or beyond the range's end, and control batches are left
        out: an answer that repeats what an earlier one held repeats nothing here. Raises
        DamagedBatchError, which names the batch.
        """
        frames = [frame for frame in frames if frame.next_offset > start_offset]
        for group in self._groups(data, frames):
            payload, records = self._locate(data, group)
            for piece in _pieces(self._only_wanted(records, start_offset)):
                yield self._build(payload, piece)

    def _groups(
        self, data: bytes | bytearray, frames: Sequence[BatchFrame]
    ) -> Iterator[list[_Batch]]:
        """Gather batches, uncompressed, up to the size of a group or one batch above it."""
        group: list[_Batch] = []
        rows = size_bytes = 0
        for frame in frames:
            if frame.is_control or frame.records_count == 0:
                continue
            if frame.base_offset >= self._wanted.end_offset:
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
        """Verify the checksum, if that is wanted, and decompress, if that is needed."""
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
        # Something in the group is wrong: one batch at a time tells which.
        for batch in group:
            self._locate(data, [batch])
        raise self._damage(group[0].frame.base_offset, "the batches do not hold together")

    def _only_wanted(self, records: RecordFields, start_offset: int) -> RecordFields:
        offsets, end_offset = records.offsets, self._wanted.end_offset
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
        log = self._wanted.log
        return DamagedBatchError(f"damaged batch in {log.described}, at offset {offset}: {reason}")


class _Batch(NamedTuple):
    """A batch and its uncompressed records, or None where they lie in the answer as they are."""

    frame: BatchFrame
    records: bytes | None

    @property
    def size_bytes(self) -> int:
        """Of the uncompressed records."""
        if self.records is not None:
            return len(self.records)
        return self.frame.end_position - self.frame.payload_position


def _joined(
    data: bytes | bytearray, group: Sequence[_Batch]
) -> tuple[bytes | bytearray, list[tuple[int, int]]]:
    """Return one buffer with the uncompressed records, and where each batch's lie."""
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
    """Cut what a large batch held into pieces of bounded rows and about bounded bytes."""
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
