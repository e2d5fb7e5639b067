"""What a truncation will do, found out while appends and reads go on: the lock is for the change.

Whatever can fail for the sake of what is on the disk fails here, before anything has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.log.context import LogContext
from engine.log.files import LocalLog
from engine.log.open.rebuild import observe_up_to
from engine.records.header import BatchHeader
from engine.segment.cut import plan_cut
from engine.segment.segment import Segment, SegmentCut
from engine.state.producers import ProducerStates


class Truncation(NamedTuple):
    """How a log ends at another offset."""

    cut: SegmentCut
    """What stays of the segment that holds the offset; those after it go."""
    last: BatchHeader | None
    """The header of the last batch that stays in the log, if one does."""
    producers: ProducerStates
    """The state below the offset."""


def plan_truncation(
    context: LogContext,
    local: LocalLog,
    producers: ProducerStates,
    offset: int,
    *,
    log_start_offset: int,
) -> Truncation:
    """Return what a truncation to `offset` does; the first segment begins at or below it.

    Needs no lock, but no segment may go away meanwhile. Leaves a producer snapshot at `offset`,
    which holds true whether the truncation follows or not. Raises CorruptIndex, StoredDataCorrupt,
    StorageError, Overloaded.
    """
    health = context.health
    start_offset = min(log_start_offset, offset)
    segments = local.segments.snapshot
    kept = segments.segments[: segments.floor_index(offset) + 1]
    with health.reading:
        cut = plan_cut(kept[-1], offset)
        last = cut.last or _last_of(kept)
    rebuilt = producers.at_most(offset, above=start_offset)
    with health.trying:  # a snapshot that is damaged is removed
        rebuilt.load_from_snapshot(start_offset, context.clock.now_ms())
    if producers.is_empty:  # nothing to find, as in Kafka
        rebuilt.map_end_offset = offset
    with health.reading:
        observe_up_to(rebuilt, local.segments, start_offset, offset)
    with health.trying:
        rebuilt.take_snapshot(sync=True)
    return Truncation(cut, last, rebuilt)


def _last_of(segments: Sequence[Segment]) -> BatchHeader | None:
    """Return the header of the last batch before the last of these segments."""
    for segment, following in reversed([*pairwise(segments)]):
        if segment.size_bytes:
            return plan_cut(segment, following.base_offset).last
    return None
