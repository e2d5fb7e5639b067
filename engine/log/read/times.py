"""Look-ups by time: the first record at or after one, and the one with the largest (KIP-734)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from engine.records.batch import BatchView
from engine.records.budget import DecodeBudget
from engine.records.compiled import CompiledRecord
from engine.records.parts import records_of
from engine.records.record import Record
from engine.segment.index_checks import ensure_true, floor_by_time
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.types import NO_LEADER_EPOCH, TimestampAndOffset


class Bounds(NamedTuple):
    """The range and the cost limits of a look-up."""

    log_start_offset: int
    limit_bytes: int
    """The limit for one decoded batch."""
    budget: DecodeBudget | None = None
    """For all batches together; None means unlimited."""

    @contextmanager
    def records(self, batch: BatchView) -> Iterator[Iterator[CompiledRecord | Record]]:
        """Yield an iterator over the records of a batch within the bounds, with memory reserved."""
        budget, limit_bytes = self.budget, self.limit_bytes
        with nullcontext() if budget is None else budget.decoding(batch.content_bound(limit_bytes)):
            records = records_of(batch, limit_bytes=limit_bytes, budget=budget)
            yield (record for record in records if record.offset >= self.log_start_offset)


def first_at_or_after(
    timestamp_ms: int, segments: SegmentSnapshot, bounds: Bounds
) -> TimestampAndOffset | None:
    """Return the first record at or after a time, from the log start on."""
    for segment in _present(segments, bounds.log_start_offset):
        if segment.largest_timestamp >= timestamp_ms:
            found = _search(segment, timestamp_ms, bounds)
            if found is not None:
                return found
    return None


def with_max_timestamp(segments: SegmentSnapshot, bounds: Bounds) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp, from the log start on, if any.

    Messages of magic 0 have no timestamps and are skipped.
    """
    best: TimestampAndOffset | None = None
    present = [
        segment for segment in _present(segments, bounds.log_start_offset) if segment.size_bytes
    ]
    for segment in sorted(present, key=lambda one: one.maximum.timestamp, reverse=True):
        if best is not None and not _may_beat(best, segment.maximum.timestamp, segment.base_offset):
            break
        best = _better(best, _newest_in(segment, bounds))
    return best


def _present(segments: SegmentSnapshot, log_start_offset: int) -> Sequence[Segment]:
    """Return the segments that may hold records at or after the log start."""
    return segments.segments[max(0, segments.floor_index(log_start_offset)) :]


def _newest_in(segment: Segment, bounds: Bounds) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp, from the log start on.

    Usually it is in the batch that the segment records as its maximum. If that batch lies below the
    log start, or compaction emptied it, all headers from the log start on are read, and the batches
    with the latest timestamps are decoded.
    """
    starting_offset = bounds.log_start_offset
    maximum = segment.maximum
    ensure_true(segment, maximum)
    noted = segment.locate(max(maximum.offset, starting_offset))
    if noted is not None and maximum.offset >= starting_offset:
        noted_batches = segment.records.batches(noted.position, noted.end)
        best = _newest_of(next(noted_batches)[1], bounds)
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
        best = _better(best, _newest_of(batch, bounds))
    return best


def _newest_of(batch: BatchView, bounds: Bounds) -> TimestampAndOffset | None:
    best: TimestampAndOffset | None = None
    if batch.header.magic > 0:
        with bounds.records(batch) as records:
            for record in records:
                if best is None or record.timestamp > best.timestamp:
                    best = _answer(batch, record)
    return best


def _better(
    one: TimestampAndOffset | None, other: TimestampAndOffset | None
) -> TimestampAndOffset | None:
    """Return the later of two results; if equal, the one with the lower offset."""
    if one is None or other is None:
        return one or other
    return other if _may_beat(one, other.timestamp, other.offset) else one


def _may_beat(best: TimestampAndOffset, timestamp_ms: int, offset: int) -> bool:
    return (timestamp_ms, -offset) > (best.timestamp, -best.offset)


def _search(segment: Segment, timestamp_ms: int, bounds: Bounds) -> TimestampAndOffset | None:
    entry = floor_by_time(segment, timestamp_ms)
    first = segment.locate(max(entry.offset, bounds.log_start_offset))
    if first is None:
        return None
    for _, batch in segment.records.batches(first.position, segment.size_bytes):
        if batch.header.max_timestamp >= timestamp_ms:
            with bounds.records(batch) as records:
                for record in records:
                    if record.timestamp >= timestamp_ms:
                        return _answer(batch, record)
    return None


def _answer(batch: BatchView, record: CompiledRecord | Record) -> TimestampAndOffset:
    epoch = batch.header.leader_epoch
    return TimestampAndOffset(
        record.timestamp, record.offset, None if epoch == NO_LEADER_EPOCH else epoch
    )
