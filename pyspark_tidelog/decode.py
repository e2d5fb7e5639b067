"""Raw record batches in, Arrow RecordBatches out.

The unit of work is a group of batches: enough of them that NumPy's cost per call vanishes, few
enough that everything stays in the cache, about 10,000 records or 1 MiB. That is also what Spark's
side likes best to be handed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from pyspark_tidelog.batches import ATTRIBUTES_POSITION, BatchFrame, FrameError, whole_batches
from pyspark_tidelog.columns import ColumnBuilder
from pyspark_tidelog.compression import DEFAULT_LIMIT_BYTES, CompressionError, Decompressor
from pyspark_tidelog.errors import DamagedBatchError
from pyspark_tidelog.positions import TopicPartition
from pyspark_tidelog.records import RecordError, RecordFields, locate_records

MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 1 << 20


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
        self, data: bytes | bytearray, frames: Sequence[BatchFrame]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the wanted records of the batches, in order, as RecordBatches of bounded size.

        Records outside the range and control batches are left out. Raises DamagedBatchError, which
        names the batch.
        """
        for group in self._groups(frames):
            payload, records = self._locate(data, group)
            wanted = self._only_wanted(records)
            for piece in _pieces(wanted):
                yield self._build(payload, piece)

    def _groups(self, frames: Sequence[BatchFrame]) -> Iterator[list[BatchFrame]]:
        group: list[BatchFrame] = []
        rows = size_bytes = 0
        for frame in frames:
            if frame.is_control or frame.records_count == 0:
                continue
            if frame.next_offset <= self._wanted.start_offset:
                continue
            if frame.base_offset >= self._wanted.end_offset:
                break
            group.append(frame)
            rows += frame.records_count
            size_bytes += frame.end_position - frame.payload_position
            if rows >= MAX_ROWS or size_bytes >= MAX_BYTES:
                yield group
                group, rows, size_bytes = [], 0, 0
        if group:
            yield group

    def _locate(
        self, data: bytes | bytearray, group: list[BatchFrame]
    ) -> tuple[bytes | bytearray, RecordFields]:
        try:
            payload, places = self._payloads(data, group)
            return payload, locate_records(payload, group, places)
        except (CompressionError, RecordError) as error:
            if len(group) == 1:
                raise self._damage(group[0].base_offset, str(error)) from error
        # Something in the group is wrong: one batch at a time tells which.
        for frame in group:
            self._locate(data, [frame])
        raise self._damage(group[0].base_offset, "the batches do not hold together")

    def _payloads(
        self, data: bytes | bytearray, group: list[BatchFrame]
    ) -> tuple[bytes | bytearray, list[tuple[int, int]]]:
        """Return one buffer with the uncompressed records, and where each batch's lie."""
        if self._check_crcs:
            self._verify_crcs(data, group)
        if not any(frame.codec for frame in group):
            return data, [(frame.payload_position, frame.end_position) for frame in group]
        parts: list[bytes] = []
        places: list[tuple[int, int]] = []
        end = 0
        view = memoryview(data)
        for frame in group:
            part = view[frame.payload_position : frame.end_position]
            parts.append(
                self._decompressor.decompress(frame.codec, part) if frame.codec else bytes(part)
            )
            places.append((end, end + len(parts[-1])))
            end += len(parts[-1])
        return b"".join(parts), places

    def _verify_crcs(self, data: bytes | bytearray, group: list[BatchFrame]) -> None:
        view = memoryview(data)
        for frame in group:
            computed = crc32c(view[frame.position + ATTRIBUTES_POSITION : frame.end_position])
            if computed != frame.crc:
                raise self._damage(
                    frame.base_offset, f"crc {frame.crc:#010x} stored, {computed:#010x} computed"
                )

    def _only_wanted(self, records: RecordFields) -> RecordFields:
        offsets, wanted = records.offsets, self._wanted
        if offsets[0] >= wanted.start_offset and offsets[-1] < wanted.end_offset:
            return records
        chosen = (offsets >= wanted.start_offset) & (offsets < wanted.end_offset)
        return records.select(np.flatnonzero(chosen))

    def _build(self, payload: bytes | bytearray, records: RecordFields) -> pa.RecordBatch:
        try:
            return self._builder.build(payload, records)
        except RecordError as error:
            raise self._damage(int(records.offsets[0]), str(error)) from error

    def _damage(self, offset: int, reason: str) -> DamagedBatchError:
        log = self._wanted.log
        return DamagedBatchError(f"damaged batch in {log.described}, at offset {offset}: {reason}")


def _pieces(records: RecordFields) -> Iterator[RecordFields]:
    """Cut what a large batch held into pieces of bounded rows and about bounded bytes."""
    rows = len(records)
    if rows == 0:
        return
    size_bytes = int(records.ends[-1] - records.positions[0])
    count = max(-(-rows // MAX_ROWS), min(rows, size_bytes // MAX_BYTES))
    if count <= 1:
        yield records
        return
    cuts = [rows * index // count for index in range(count + 1)]
    for start, end in pairwise(cuts):
        yield records.select(slice(start, end))
