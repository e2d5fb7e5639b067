"""Quick checks of the indexes of a segment that recovery does not scan.

It only reads the ends of the files, whatever their size. Other entries are verified when they are
first used; see `engine.segment.proofs`.
"""

from __future__ import annotations

from engine.errors import InvalidRequest, StoredDataCorrupt
from engine.records.batch import BatchView
from engine.records.control import parse_end_marker
from engine.segment.segment import Segment
from engine.segment.times import ensure_true
from engine.types import AbortedTransaction


def ensure_sane(segment: Segment, *, has_transactions: bool) -> int | None:
    """Raise CorruptIndex if a last entry, or an aborted transaction, contradicts the log file.

    `has_transactions` says whether a transaction index exists. Returns the offset after the last
    batch, or None if the log file is damaged there, which is not reported here: reads of it fail.
    """
    indexes = segment.indexes
    indexes.sanity_check(segment.size_bytes, has_transactions=has_transactions)
    try:
        _check_offsets(segment)
        ensure_true(segment, indexes.time.last_entry)
        next_offset = _check_last_time(segment)
        if has_transactions:
            for aborted in indexes.transaction.entries():
                _check_transaction(segment, aborted)
    except StoredDataCorrupt:
        return None
    return next_offset


def _check_offsets(segment: Segment) -> None:
    index = segment.indexes.offset
    if index.count == 0:
        return
    last = index.entry(index.count - 1)
    if index.count > 1 and not index.entry(0).offset < last.offset:
        raise segment.proofs.disproved(index.path, f"descends to offset {last.offset}")
    segment.proofs.ensure_batch_at(last.position, index)
    found = next((header.base_offset for _, header in segment.headers(last.position)), None)
    if found is None or found > last.offset:
        what = "the end" if found is None else found
        raise segment.proofs.disproved(index.path, f"points past offset {last.offset}, to {what}")


def _check_last_time(segment: Segment) -> int:
    """Raise CorruptIndex if the time index lacks the largest timestamp of the segment's tail.

    Returns the offset after the last batch.
    """
    next_offset = segment.base_offset
    indexes = segment.indexes
    last = indexes.time.last_entry
    if indexes.time.count == 0:
        _, first = next(segment.headers(), (0, None))
        if first is not None and first.max_timestamp >= 0:
            what = f"lacks the time {first.max_timestamp}"
            raise segment.proofs.disproved(indexes.time_path, what)
    for _, header in segment.headers(indexes.offset.last_entry.position):
        if header.max_timestamp > last.timestamp:
            what = f"lacks the time {header.max_timestamp}"
            raise segment.proofs.disproved(indexes.time_path, what)
        next_offset = header.next_offset
    return next_offset


def _check_transaction(segment: Segment, aborted: AbortedTransaction) -> None:
    """Compare an entry with the marker it names."""
    found = segment.locate(aborted.last_offset)
    if found is not None:
        _, header = next(segment.headers(found.position))
        view = BatchView(segment.records.read(found.position, header.size_bytes))
        try:
            marker = parse_end_marker(view) if header.is_control else None
        except InvalidRequest:
            return  # the marker is damaged, not the index
        if (
            marker is not None
            and marker.is_abort
            and header.producer_id == aborted.producer_id
            and marker.offset == aborted.last_offset
            and 0 <= aborted.first_offset <= aborted.last_offset
            and aborted.last_stable_offset <= aborted.last_offset + 1
        ):
            return
    path = segment.indexes.transaction_path
    what = f"names an abort at offset {aborted.last_offset} that does not exist"
    raise segment.proofs.disproved(path, what)
