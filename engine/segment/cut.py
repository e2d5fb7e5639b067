"""What a truncation must know of a segment before it changes anything.

It is found out as readers find a batch, without a lock. An index entry that was found on disk is
followed only once it is proven, because an index carries no checksum: a truncation that meets a
wrong one fails before it has changed anything, and the index can be rebuilt.
"""

from __future__ import annotations

from engine.segment.segment import NO_MAXIMUM, Segment, SegmentCut
from engine.segment.times import ensure_true
from engine.types import TimestampOffset


def plan_cut(segment: Segment, offset: int) -> SegmentCut:
    """Return what stays of a segment if every batch goes that holds `offset` or more.

    A batch goes whole even if it starts below `offset`. What is appended afterwards goes too. Reads
    the headers from the last time index entry below `offset` on; takes no lock. Raises CorruptIndex
    if an index that is needed is wrong, StoredDataCorrupt, and OSError.
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
    return SegmentCut(offset, position, maximum, last)


def _proven_start(segment: Segment, offset: int, position: int) -> tuple[int, TimestampOffset]:
    """Return where to read headers from, and the largest time before that.

    Proves the last entries that stay in the two indexes: every later look-up relies on them.
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
