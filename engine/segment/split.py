"""Splits a segment with offsets that are too large for its indexes.

Old brokers could write such segments, with base offset 0 and an offset above 2**31 - 1 for example.
A split copies the batches unchanged into new segments, each named after its first batch. Mirrors
Kafka's `LocalLog.splitOverflowedSegment` and `LogSegment.appendFromFile`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.errors import InvalidRequestValue
from engine.records.header import BatchHeader
from engine.segment.segment import Segment
from engine.types import INT32_MAX, NO_TIMESTAMP, TimestampOffset

COPY_BYTES: Final = 1024 * 1024
"""How much is copied in one append, and covered by at most one index entry."""


def has_overflow(segment: Segment) -> bool:
    """Whether the segment's last offset is too far from its base offset."""
    last_offset = segment.base_offset - 1
    for _, header in segment.headers():
        last_offset = header.last_offset
    return last_offset - segment.base_offset > INT32_MAX


def split_overflowed(segment: Segment, create: Callable[[int], Segment]) -> list[Segment]:
    """Return new segments, sealed and synced, that together hold the bytes of `segment`.

    `create` creates an empty segment with the given base offset, whose files are not live yet.
    Raises InvalidRequestValue for a segment that needs no split.
    """
    if not has_overflow(segment):
        raise InvalidRequestValue(f"{segment} needs no split")
    modified_ms = segment.modified_ms
    parts: list[Segment] = []
    position = 0
    while position < segment.size_bytes:
        _, first = next(segment.headers(position))
        part = create(segment.records.first_offset(position, first))
        parts.append(part)
        position += append_from(part, segment, position)
    assert sum(part.size_bytes for part in parts) == segment.size_bytes, "a split loses nothing"
    for part in parts:
        part.seal()
        part.flush()
        part.set_modified_ms(modified_ms)
    return parts


def append_from(target: Segment, source: Segment, position: int) -> int:
    """Copy batches of `source` from `position` on, while their offsets fit into `target`.

    Returns the bytes copied.
    """
    copied = 0
    while position + copied < source.size_bytes:
        taken = _take(target, source, position + copied)
        if not taken:
            break
        size = sum(header.size_bytes for header in taken)
        maximum = _maximum(taken)
        data = source.records.read(position + copied, size)
        target.append(data, taken[-1].last_offset, maximum.timestamp, maximum.offset)
        copied += size
    return copied


def _take(target: Segment, source: Segment, position: int) -> list[BatchHeader]:
    """Return the headers of the next batches to copy; a single batch may exceed the size."""
    taken: list[BatchHeader] = []
    size = 0
    for _, header in source.headers(position):
        if header.last_offset - target.base_offset > INT32_MAX:
            break
        if taken and size + header.size_bytes > COPY_BYTES:
            break
        taken.append(header)
        size += header.size_bytes
    return taken


def _maximum(headers: list[BatchHeader]) -> TimestampOffset:
    """Return the largest timestamp and the last offset of the first batch that has it."""
    maximum = TimestampOffset(NO_TIMESTAMP, headers[0].last_offset)
    for header in headers:
        if header.max_timestamp > maximum.timestamp:
            maximum = TimestampOffset(header.max_timestamp, header.last_offset)
    return maximum
