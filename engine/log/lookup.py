"""Find an offset by time; Kafka's `UnifiedLog.fetchOffsetByTimestamp`.

The first segment that reaches the time is the only one searched; its time index says from where.
What lies at or above the reader's bound is not found.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from engine.records.batch import BatchView
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.types import NO_LEADER_EPOCH, TimestampAndOffset


def first_at_or_after(
    timestamp_ms: int, segments: SegmentSnapshot, *, log_start_offset: int, limit_bytes: int
) -> TimestampAndOffset | None:
    """Return the first record of at least that time, at or after the log start."""
    for segment in segments.segments:
        if segment.largest_timestamp >= timestamp_ms:
            return _search(segment, timestamp_ms, log_start_offset, limit_bytes)
    return None


def with_max_timestamp(segments: SegmentSnapshot, *, limit_bytes: int) -> TimestampAndOffset | None:
    """Return the first record with the largest time of all; None for an empty log.

    None too where that record is of magic 0, which has no times.
    """
    candidates = [segment for segment in segments.segments if segment.size_bytes]
    if not candidates:
        return None
    segment = max(candidates, key=lambda candidate: candidate.maximum.timestamp)
    maximum = segment.maximum
    segment.ensure_true(maximum)
    found = segment.locate(maximum.offset)
    start = 0 if found is None else found.position  # without any time, the first record has it
    newest = (
        batch
        for _, batch in segment.records.batches(start, segment.size_bytes)
        if batch.header.max_timestamp == maximum.timestamp
    )
    with_times = (batch for batch in islice(newest, 1) if batch.header.magic > 0)
    return _first_record(with_times, maximum.timestamp, 0, limit_bytes)


def _search(
    segment: Segment, timestamp_ms: int, starting_offset: int, limit_bytes: int
) -> TimestampAndOffset | None:
    entry = segment.floor_by_time(timestamp_ms)
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
                epoch = batch.header.leader_epoch
                return TimestampAndOffset(
                    record.timestamp, record.offset, None if epoch == NO_LEADER_EPOCH else epoch
                )
    return None
