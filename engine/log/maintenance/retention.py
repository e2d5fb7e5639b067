"""Which segments retention removes, and why: pure decisions over a list of segments.

Only the oldest segments are removed, without gaps: the first segment that must stay protects all
later ones. A segment that ends above the high watermark stays, whatever its age. The order of the
passes and the strictness of every comparison are those of Kafka's `UnifiedLog.deleteOldSegments`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from engine.config import LogConfig
from engine.log.results import RemovalReason, RemovedSegment
from engine.state.watermarks import Watermarks


class Candidate(Protocol):
    """The attributes of a segment that retention uses."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def largest_timestamp(self) -> int: ...


Predicate: TypeAlias = Callable[[Candidate, Candidate | None], bool]
"""Whether a segment may be removed, given the next one."""

Rule: TypeAlias = Callable[[Sequence[Candidate]], Predicate]
"""Makes the predicate for the segments that earlier passes left."""


def removable(
    segments: Sequence[Candidate],
    config: LogConfig,
    marks: Watermarks,
    now_ms: int,
) -> list[RemovedSegment]:
    """Return the segments to remove now, oldest first: below the log start, by size, by age."""
    rules: list[tuple[RemovalReason, Rule]] = [
        (RemovalReason.LOG_START, lambda _: _below(marks.log_start_offset))
    ]
    if config.deletes:
        rules += [
            (RemovalReason.SIZE, lambda left: _over_size(left, config.retention_bytes)),
            (RemovalReason.TIME, lambda _: _older_than(config.retention_ms, now_ms)),
        ]
    removed: list[RemovedSegment] = []
    for reason, rule in rules:
        left = segments[len(removed) :]  # each pass gets what the previous one left
        for segment in _prefix(left, rule(left), marks):
            following = _following(segments, len(removed))
            next_offset = marks.log_end_offset if following is None else following.base_offset
            removed.append(
                RemovedSegment(
                    segment.base_offset,
                    next_offset,
                    segment.size_bytes,
                    segment.largest_timestamp,
                    reason,
                )
            )
    return removed


def held_by_time(
    left: Sequence[Candidate], config: LogConfig, marks: Watermarks, now_ms: int
) -> Candidate | None:
    """Return the segment in which a record's time in the future keeps it, and all after it.

    `left` are the segments that `removable` leaves. None if retention by time is off, or if the
    oldest of them ends above the high watermark anyway.
    """
    if not config.deletes or config.retention_ms < 0 or not left:
        return None
    following = _following(left, 0)
    end_offset = marks.log_end_offset if following is None else following.base_offset
    is_held = left[0].largest_timestamp > now_ms and marks.high_watermark >= end_offset
    return left[0] if is_held else None


def _following(segments: Sequence[Candidate], index: int) -> Candidate | None:
    return segments[index + 1] if index + 1 < len(segments) else None


def _prefix(
    segments: Sequence[Candidate], predicate: Predicate, marks: Watermarks
) -> list[Candidate]:
    """Return the leading segments that are committed and match the predicate."""
    taken: list[Candidate] = []
    for index, segment in enumerate(segments):
        following = _following(segments, index)
        end_offset = marks.log_end_offset if following is None else following.base_offset
        # The predicate counts bytes, so it is only called for segments that may be removed.
        if marks.high_watermark < end_offset or not predicate(segment, following):
            break
        if following is None and segment.size_bytes == 0:
            break
        taken.append(segment)
    return taken


def _below(log_start_offset: int) -> Predicate:
    def predicate(_segment: Candidate, following: Candidate | None) -> bool:
        return following is not None and following.base_offset <= log_start_offset

    return predicate


def _over_size(segments: Sequence[Candidate], retention_bytes: int) -> Predicate:
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes

    def predicate(segment: Candidate, _following: Candidate | None) -> bool:
        nonlocal excess
        if retention_bytes < 0 or excess < segment.size_bytes:
            return False
        excess -= segment.size_bytes
        return True

    return predicate


def _older_than(retention_ms: int, now_ms: int) -> Predicate:
    def predicate(segment: Candidate, _following: Candidate | None) -> bool:
        return 0 <= retention_ms < now_ms - segment.largest_timestamp

    return predicate
