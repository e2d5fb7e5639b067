"""Plans a truncation before the lock is taken, during appends and reads.

Everything that can fail because of data on disk fails here, before anything has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.log.files import LocalLog, LogContext
from engine.log.open.rebuild import observe_up_to
from engine.records.header import BatchHeader
from engine.segment.recovery import plan_cut
from engine.segment.segment import Segment, SegmentCut
from engine.state.producers import ProducerStates


class Truncation(NamedTuple):
    """The plan of a truncation."""

    cut: SegmentCut
    """How much stays of the segment that holds the offset; later segments are removed."""
    last: BatchHeader | None
    """The header of the last batch that stays in the log, if any."""
    producers: ProducerStates
    """The producer state below the offset."""


def plan_truncation(
    context: LogContext,
    local: LocalLog,
    producers: ProducerStates,
    offset: int,
    *,
    log_start_offset: int,
) -> Truncation:
    """Plan a truncation to `offset`, which is at or above the first segment's base offset.

    Needs no lock, but no segment may be removed meanwhile. Writes a producer snapshot at `offset`,
    which is valid even if the truncation does not follow. Raises CorruptIndex, StoredDataCorrupt,
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
    with health.trying:  # removes damaged snapshots
        rebuilt.load_from_snapshot(start_offset, context.clock.now_ms())
    if producers.is_empty:  # nothing to rebuild, as in Kafka
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
