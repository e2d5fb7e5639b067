"""Find an offset by time; Kafka's `UnifiedLog.fetchOffsetByTimestamp`.

The first segment that reaches the time is the only one searched; its time index says from where. If
what reaches the time there was compacted away, nothing is found, as in Kafka; if it lies below the
log start, the next one is searched. What lies at or above the reader's bound is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.records.batch import BatchView
from engine.records.record import Record
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.segment.times import ensure_true, floor_by_time
from engine.types import NO_LEADER_EPOCH, TimestampAndOffset


def first_at_or_after(
    timestamp_ms: int, segments: SegmentSnapshot, *, log_start_offset: int, limit_bytes: int
) -> TimestampAndOffset | None:
    """Return the first record of at least that time, at or after the log start."""
    for segment in _present(segments, log_start_offset):
        if segment.largest_timestamp >= timestamp_ms:
            found = _search(segment, timestamp_ms, log_start_offset, limit_bytes)
            if found is not None or segment.base_offset >= log_start_offset:
                return found
    return None


def with_max_timestamp(
    segments: SegmentSnapshot, *, log_start_offset: int, limit_bytes: int
) -> TimestampAndOffset | None:
    """Return the first record with the largest time of all, at or after the log start, if any.

    Messages of magic 0 have no times and are passed over.
    """
    best: TimestampAndOffset | None = None
    present = [segment for segment in _present(segments, log_start_offset) if segment.size_bytes]
    for segment in sorted(present, key=lambda one: one.maximum.timestamp, reverse=True):
        if best is not None and not _may_beat(best, segment.maximum.timestamp, segment.base_offset):
            break
        best = _better(best, _newest_in(segment, log_start_offset, limit_bytes))
    return best


def _present(segments: SegmentSnapshot, log_start_offset: int) -> Sequence[Segment]:
    """Return the segments that may hold something at or after the log start."""
    return segments.segments[max(0, segments.floor_index(log_start_offset)) :]


def _newest_in(
    segment: Segment, starting_offset: int, limit_bytes: int
) -> TimestampAndOffset | None:
    """Return the first record with the largest time, from an offset on.

    Nearly always it is in the batch that the segment has noted. If that lies below the offset, or
    compaction emptied it, all headers from there on are read and the latest batches looked into.
    """
    maximum = segment.maximum
    ensure_true(segment, maximum)
    noted = segment.locate(max(maximum.offset, starting_offset))
    if noted is not None and maximum.offset >= starting_offset:
        noted_batches = segment.records.batches(noted.position, noted.end)
        best = _newest_of(next(noted_batches)[1], starting_offset, limit_bytes)
        if best is not None and best.timestamp == maximum.timestamp:
            return best
    first = segment.locate(starting_offset)
    if first is None:
        return None
    headers = list(segment.headers(first.position))
    best = None
    for position, header in sorted(headers, key=lambda one: one[1].max_timestamp, reverse=True):
        if best is not None and not _may_beat(best, header.max_timestamp, header.base_offset):
            break
        _, batch = next(segment.records.batches(position, position + header.size_bytes))
        best = _better(best, _newest_of(batch, starting_offset, limit_bytes))
    return best


def _newest_of(
    batch: BatchView, starting_offset: int, limit_bytes: int
) -> TimestampAndOffset | None:
    best: TimestampAndOffset | None = None
    if batch.header.magic > 0:
        for record in batch.records(limit_bytes=limit_bytes):
            if record.offset >= starting_offset and (
                best is None or record.timestamp > best.timestamp
            ):
                best = _answer(batch, record)
    return best


def _better(
    one: TimestampAndOffset | None, other: TimestampAndOffset | None
) -> TimestampAndOffset | None:
    """Return the later of two answers, of equals the one that is first in the log."""
    if one is None or other is None:
        return one or other
    return other if _may_beat(one, other.timestamp, other.offset) else one


def _may_beat(best: TimestampAndOffset, timestamp_ms: int, offset: int) -> bool:
    return (timestamp_ms, -offset) > (best.timestamp, -best.offset)


def _search(
    segment: Segment, timestamp_ms: int, starting_offset: int, limit_bytes: int
) -> TimestampAndOffset | None:
    entry = floor_by_time(segment, timestamp_ms)
    first = segment.locate(max(entry.offset, starting_offset))
    if first is None:
        return None
    late_enough = (
        batch
        for _, batch in segment.records.batches(first.position, segment.size_bytes)
        if batch.header.max_timestamp >= timestamp_ms
    )
    return _first_record(late_enough, timestamp_ms, starting_offset, limit_bytes)


def _first_record(
    batches: Iterable[BatchView], timestamp_ms: int, starting_offset: int, limit_bytes: int
) -> TimestampAndOffset | None:
    for batch in batches:
        for record in batch.records(limit_bytes=limit_bytes):
            if record.timestamp >= timestamp_ms and record.offset >= starting_offset:
                return _answer(batch, record)
    return None


def _answer(batch: BatchView, record: Record) -> TimestampAndOffset:
    epoch = batch.header.leader_epoch
    return TimestampAndOffset(
        record.timestamp, record.offset, None if epoch == NO_LEADER_EPOCH else epoch
    )
