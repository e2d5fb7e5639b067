"""Verified look-ups in a segment's time index, which has no checksum."""

from __future__ import annotations

from engine.segment.segment import Segment
from engine.types import TimestampOffset


def floor_by_time(segment: Segment, timestamp_ms: int) -> TimestampOffset:
    """Return the last time index entry at or before a time, or (-1, base offset) if none.

    No record up to its offset is later. Raises CorruptIndex if the log file contradicts it.
    """
    entry = segment.indexes.time.lookup(timestamp_ms)
    ensure_true(segment, entry)
    return entry


def ensure_true(segment: Segment, entry: TimestampOffset) -> None:
    """Raise CorruptIndex unless the batch that a time index entry names has that time."""
    if entry.timestamp < 0:
        return
    found = segment.locate(entry.offset)
    if found is not None and not segment.proofs.was_found(found.position):
        return
    if found is not None and found.base_offset <= entry.offset:
        _, header = next(segment.headers(found.position))
        if header.max_timestamp == entry.timestamp:
            return
    raise segment.proofs.disproved(
        segment.indexes.time_path, f"names offset {entry.offset} for time {entry.timestamp}"
    )
