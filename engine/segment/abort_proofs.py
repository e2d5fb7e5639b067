"""Verifies transaction indexes that were found on disk.

A missing entry cannot be seen in the index itself, and would make aborted records look committed.
So before such an index is first used, the headers of its segment are read once, and its entries are
compared with the markers. Reads without transactions never need it.
"""

from __future__ import annotations

from engine.errors import CorruptIndex, InvalidRequest
from engine.records.batch import BatchView
from engine.records.control import parse_end_marker
from engine.segment.segment import Segment
from engine.types import AbortedTransaction


def ensure_aborts_known(segment: Segment) -> None:
    """Raise CorruptIndex unless the segment's transaction index agrees with its markers.

    Reads the whole segment the first time, if the index was found on disk. Raises
    StoredDataCorrupt.
    """
    proofs = segment.proofs
    if proofs.unproven_aborts_bytes == 0:
        return
    with proofs.proving:
        if proofs.unproven_aborts_bytes:
            _prove(segment)


def _prove(segment: Segment) -> None:
    proofs = segment.proofs
    cuts, unproven_bytes = proofs.cuts, proofs.unproven_aborts_bytes
    # The entries are read before the headers, so that the headers include each entry's marker.
    walk = _MarkerWalk(segment)
    for position, header in segment.headers():
        if header.is_control:
            data = segment.records.read(position, header.size_bytes)
            walk.see_marker(BatchView(data), needs_entry=position < unproven_bytes)
        elif header.is_transactional and header.last_offset >= proofs.log_start_offset:
            walk.open.setdefault(header.producer_id, header.base_offset)
    walk.finish()
    proofs.trust_aborts(cuts, walk.ended)


class _MarkerWalk:
    """The transactions of one segment, according to its own batches."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        entries = segment.indexes.transaction.entries()
        self._entries = {(one.producer_id, one.last_offset): one for one in entries}
        self.open: dict[int, int] = {}
        """The first offset of each transaction that began in this segment, by producer."""
        self.ended: dict[int, int] = {}
        """The last marker of each producer so far."""

    def see_marker(self, batch: BatchView, *, needs_entry: bool) -> None:
        """Compare one marker with its entry; a marker that was just appended may have none yet."""
        header = batch.header
        producer_id, offset = header.producer_id, header.last_offset
        first_seen = self.open.pop(producer_id, None)
        previous_end = self.ended.get(producer_id, -1)
        self.ended[producer_id] = offset
        entry = self._entries.pop((producer_id, offset), None)
        try:
            batch.ensure_intact()
            marker = parse_end_marker(batch)
        except InvalidRequest:
            return  # the marker is damaged; reads of it fail too
        if entry is None:
            is_abort = marker is not None and marker.is_abort
            if is_abort and first_seen is not None and needs_entry:
                raise self._wrong(f"lacks the abort at offset {offset}")
            return
        begins_late = first_seen is not None and entry.first_offset > first_seen
        if (
            marker is None
            or not marker.is_abort
            or begins_late
            or not previous_end < entry.first_offset <= offset
            or entry.last_stable_offset > self._stable_offset(entry)
        ):
            raise self._wrong(f"is wrong about the transaction that ends at offset {offset}")

    def finish(self) -> None:
        """Raise if an entry has no marker."""
        for _, last_offset in self._entries:
            raise self._wrong(f"names an abort at offset {last_offset} that does not exist")

    def _stable_offset(self, entry: AbortedTransaction) -> int:
        return min(self.open.values(), default=entry.last_offset + 1)

    def _wrong(self, what: str) -> CorruptIndex:
        path = self._segment.indexes.transaction_path
        return self._segment.proofs.disproved(path, f"{what}; `tidelog repair` rebuilds it")
