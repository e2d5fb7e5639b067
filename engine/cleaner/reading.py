"""Reads a segment's batches in large chunks, and verifies each batch before it is used.

Compaction copies batches and computes new checksums, so damage that it did not detect would become
undetectable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from engine.errors import CorruptBatch
from engine.records.batch import BatchView
from engine.records.compiled import DECODING_ERRORS, CompiledRecord
from engine.records.header import MAGIC_2, BatchHeader, frame_size
from engine.records.record import Record
from engine.segment.segment import Segment

Pace = Callable[[int], None]
"""Called with a number of bytes before they are used; may wait, or raise CleaningAborted."""


StoredRecord: TypeAlias = Record | CompiledRecord
"""A record from either decoder."""


def records_of(batch: BatchView, limit_bytes: int) -> Sequence[StoredRecord]:
    """Return all records of an intact batch, from the compiled decoder if it can read them.

    Raises InvalidRecord, CorruptBatch or TooLarge.
    """
    if batch.header.magic != MAGIC_2:
        return list(batch.records(limit_bytes=limit_bytes))
    try:
        return list(batch.compiled_records(limit_bytes=limit_bytes))
    except DECODING_ERRORS:
        return list(batch.records(limit_bytes=limit_bytes))


def read_chunks(
    segment: Segment, position: int, *, end_offset: int, chunk_bytes: int, pace: Pace
) -> Iterator[list[BatchView]]:
    """Yield the verified batches from a batch's position on, one chunk of batches at a time.

    A batch larger than a chunk comes alone. Raises StoredDataCorrupt where the file does not hold a
    complete and intact batch with ascending offsets below `end_offset`.
    """
    end = segment.size_bytes
    next_offset = segment.base_offset
    while position < end:
        length = min(chunk_bytes, end - position)
        chunk = segment.records.read(position, length)
        try:
            needed = frame_size(chunk)
            if needed is not None and length < needed <= end - position:
                chunk = segment.records.read(position, needed)
            batches = list(_whole_batches(chunk))
            for batch in batches:
                _ensure_in_place(batch.header, next_offset, end_offset)
                next_offset = batch.header.next_offset
        except CorruptBatch as error:
            raise segment.records.damaged(str(error), position, segment.base_offset) from error
        if not batches:
            what = f"{end - position} bytes that are not a whole batch"
            raise segment.records.damaged(what, position, segment.base_offset)
        read_bytes = sum(batch.header.size_bytes for batch in batches)
        pace(read_bytes)
        yield batches
        position += read_bytes


def _ensure_in_place(header: BatchHeader, next_offset: int, end_offset: int) -> None:
    """Raise unless the offsets are possible: no checksum covers the base offset."""
    if not next_offset <= header.base_offset <= header.last_offset < end_offset:
        raise CorruptBatch(
            f"a batch of offsets {header.base_offset} to {header.last_offset} "
            f"where only {next_offset} to {end_offset - 1} can be"
        )


def _whole_batches(chunk: bytes | bytearray | memoryview) -> Iterator[BatchView]:
    view = memoryview(chunk)
    position = 0
    while (size := frame_size(view, position)) is not None and size <= len(view) - position:
        batch = BatchView(view, position)
        batch.ensure_intact()
        yield batch
        position += size
