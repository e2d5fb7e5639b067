"""Plans the truncation of one segment, without changing it.

Batches are located as for reads, without a lock. Index entries found on disk are verified before
use, because an index has no checksum: if one is wrong, the truncation fails before it has changed
anything, and the index can be rebuilt.
"""

from __future__ import annotations

from engine.segment.segment import NO_MAXIMUM, Segment, SegmentCut
from engine.segment.times import ensure_true
from engine.types import TimestampOffset


def plan_cut(segment: Segment, offset: int) -> SegmentCut:
    """Return how much of a segment stays when all batches with `offset` or later are removed.

    A batch that holds `offset` is removed whole. Batches that are appended later are removed too.
    Reads the headers from the last time index entry below `offset` on; takes no lock. Raises
    CorruptIndex if an index is wrong, StoredDataCorrupt, and OSError.
    """
    size_bytes = segment.size_bytes
    found = segment.locate(offset, size_bytes)
    position = size_bytes if found is None else found.position
    start, maximum = _proven_start(segment, offset, position)
    last = None
    for _, header in segment.records.ascending_headers(
        start, position, next_offset=segment.base_offset
    ):
        if header.max_timestamp > maximum.timestamp:
            maximum = TimestampOffset(header.max_timestamp, header.last_offset)
        last = header
    offsets, times = segment.indexes.offset, segment.indexes.time
    kept = offsets.kept_below(offset), times.kept_below(offset)
    return SegmentCut(offset, position, maximum, last, *kept)


def _proven_start(segment: Segment, offset: int, position: int) -> tuple[int, TimestampOffset]:
    """Return the position to read headers from, and the largest timestamp before it.

    Verifies the last remaining entries of the two indexes, on which later look-ups rely.
    """
    offsets, times = segment.indexes.offset, segment.indexes.time
    last_kept = offsets.lookup(offset - 1).position
    if 0 < last_kept >= position:
        raise segment.proofs.disproved(offsets.path, f"leads to byte {last_kept}, past {offset}")
    segment.proofs.ensure_batch_at(last_kept, offsets)
    entry = times.floor_by_offset(offset - 1)
    ensure_true(segment, entry)
    start = offsets.lookup(entry.offset).position
    segment.proofs.ensure_batch_at(start, offsets)
    return start, entry if entry.timestamp >= 0 else NO_MAXIMUM
