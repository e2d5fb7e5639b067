"""Which log to clean, and how far: decisions over numbers and segments that change nothing.

    clean               dirty, cleanable            uncleanable
    ├───────────────────┼───────────────────────────┼──────────────►
    first segment       first dirty offset          first uncleanable offset      log end

The active segment, unstable offsets, and records younger than the topic's minimum lag are
uncleanable. Mirrors Kafka's `LogCleanerManager.cleanableOffsets` and `LogToClean`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.config import LogConfig
from engine.log.log import Log
from engine.segment.segment import Segment
from engine.types import INT64_MAX


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """The offsets of one log to clean: [first_dirty_offset, first_uncleanable_offset)."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of a segment; at least `first_dirty_offset`, unless nothing can be
    cleaned."""
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """How long the oldest dirty record has exceeded max.compaction.lag.ms; 0 if none has."""

    @property
    def ratio(self) -> float:
        """The share of dirty bytes; 0 for a log without any."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the log's configuration asks for a cleaning now."""
        if self.overdue_ms and self.cleanable_bytes:
            return True
        return self.ratio > self.log.config.min_cleanable_dirty_ratio


def first_dirty_offset(log: Log, cleaned_up_to: int | None) -> int:
    """Return where the last cleaning ended, or the log start if that is impossible.

    A cleaning ends at or below the last stable offset, which only a truncation lowers.
    """
    marks = log.watermarks
    if cleaned_up_to is None:
        return marks.log_start_offset
    if not marks.log_start_offset <= cleaned_up_to <= marks.last_stable_offset:
        return marks.log_start_offset
    return cleaned_up_to


def cleanable_range(
    log: Log, segments: Sequence[Segment], first_dirty: int, now_ms: int
) -> CleanableRange:
    """Return the range of a log that may be cleaned now, given one snapshot of its segments.

    Reads at most one header of each dirty segment.
    """
    config = log.config
    stable_offset = log.watermarks.last_stable_offset
    active = segments[-1].base_offset
    sealed_dirty = segments_from(segments[:-1], first_dirty) if active > first_dirty else ()
    too_young = _first_too_young(sealed_dirty, config, now_ms)
    bound = max(first_dirty, min(stable_offset, active, too_young))
    first_uncleanable = _segment_start(segments, bound)
    clean = overlapping(segments, 0, first_dirty)
    cleanable = overlapping(segments, min(first_dirty, first_uncleanable), first_uncleanable)
    return CleanableRange(
        log,
        first_dirty,
        first_uncleanable,
        sum(segment.size_bytes for segment in clean),
        sum(segment.size_bytes for segment in cleanable),
        _overdue_ms(sealed_dirty, config, now_ms),
    )


def sealed_bytes_from(log: Log, offset: int) -> int:
    """Return the bytes of the sealed segments from the segment that holds `offset`."""
    segments = log.reader.segments
    return sum(one.size_bytes for one in segments_from(segments, offset) if one != segments[-1])


def due_by_dirt(ranges: Iterable[CleanableRange]) -> list[CleanableRange]:
    """Return the logs that are due, the one with the greatest share of dirty bytes first."""
    due = [candidate for candidate in ranges if candidate.is_due]
    return sorted(due, key=lambda candidate: candidate.ratio, reverse=True)


def grouped(
    segments: Sequence[Segment], config: LogConfig, first_uncleanable_offset: int
) -> Iterator[list[Segment]]:
    """Yield runs of segments that fit into one; a segment that is too large alone stays alone.

    The limits are log bytes, index bytes, and the range of a relative offset. Empty segments do not
    count for the last limit; otherwise one would remain for every 2**31 offsets. Kafka's
    `Cleaner.groupSegmentsBySize`.
    """
    group: list[Segment] = []
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        end_offset = first_uncleanable_offset if following is None else following
        if group and not _fits(group, segment, end_offset, config):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _fits(group: list[Segment], segment: Segment, end_offset: int, config: LogConfig) -> bool:
    joined = [*group, segment]
    if sum(one.size_bytes for one in joined) > config.segment_bytes:
        return False
    if sum(one.indexes.offset.size_bytes for one in joined) > config.segment_index_bytes:
        return False
    if sum(one.indexes.time.size_bytes for one in joined) > config.segment_index_bytes:
        return False
    is_near = end_offset - 1 - group[0].base_offset <= 2**31 - 1
    return segment.size_bytes == 0 or is_near


def overlapping(segments: Sequence[Segment], start: int, end: int) -> Sequence[Segment]:
    """Return the segments that may hold offsets of [start, end)."""
    if start >= end:
        return ()
    return [segment for segment in segments_from(segments, start) if segment.base_offset < end]


def segments_from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """Return the segments from the segment that holds `offset`."""
    first = sum(segment.base_offset <= offset for segment in segments) - 1
    return segments[max(0, first) :]


def _segment_start(segments: Sequence[Segment], offset: int) -> int:
    """Return the base offset of the segment that holds `offset`; that segment is not cleaned."""
    return segments_from(segments, offset)[0].base_offset


def _first_too_young(sealed: Sequence[Segment], config: LogConfig, now_ms: int) -> int:
    if config.min_compaction_lag_ms > 0:
        youngest_allowed_ms = now_ms - config.min_compaction_lag_ms
        for segment in sealed:
            if segment.largest_timestamp > youngest_allowed_ms:
                return segment.base_offset
    return INT64_MAX


def _overdue_ms(sealed: Sequence[Segment], config: LogConfig, now_ms: int) -> int:
    """Return by how many ms the oldest dirty segment exceeds the maximum lag."""
    if config.max_compaction_lag_ms == INT64_MAX:
        return 0
    times = [time for segment in sealed if (time := _first_timestamp(segment)) > 0]
    oldest_allowed_ms = max(0, now_ms - config.max_compaction_lag_ms)
    return max(0, oldest_allowed_ms - min(times, default=oldest_allowed_ms))


def _first_timestamp(segment: Segment) -> int:
    """Return the time of the first batch, or -1."""
    _, header = next(segment.headers(), (0, None))
    return -1 if header is None else header.max_timestamp
