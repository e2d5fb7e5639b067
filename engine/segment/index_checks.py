"""When an index that was found on disk is trusted, and what happens if it is not.

An index has no checksum. Entries that this process wrote or rebuilt are trusted; what is known of
the others is in `engine.segment.proofs`. A start reads only the ends of the files, whatever their
size; other entries are verified when they are first used. A wrong sparse index is rebuilt from the
log file while the segment stays in use.

A missing entry of a transaction index cannot be seen in the index itself, and would make aborted
records look committed. So before such an index is first used, the headers of its segment are read
once, and its entries are compared with the markers. Reads without transactions never need it.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import CorruptIndex, InvalidRequest, StoredDataCorrupt
from engine.fs import names
from engine.records.batch import BatchView
from engine.records.control import parse_end_marker
from engine.segment.segment import NO_MAXIMUM, Segment
from engine.types import AbortedTransaction, OffsetPosition, TimestampOffset


def floor_by_time(segment: Segment, timestamp_ms: int) -> TimestampOffset:
    """Return the last time index entry at or before a time, or (-1, base offset) if none.

    No record up to its offset is later. Raises CorruptIndex if the log file contradicts it.
    """
    entry = segment.indexes.time.lookup(timestamp_ms)
    ensure_true(segment, entry)
    return entry


def ensure_true(segment: Segment, entry: TimestampOffset) -> None:
    """Raise CorruptIndex unless the batch that a time index entry names has that time."""
    if entry.timestamp < 0:
        return
    found = segment.locate(entry.offset)
    if found is not None and not segment.proofs.was_found(found.position):
        return
    if found is not None and found.base_offset <= entry.offset:
        _, header = next(segment.headers(found.position))
        if header.max_timestamp == entry.timestamp:
            return
    raise segment.proofs.disproved(
        segment.indexes.time_path, f"names offset {entry.offset} for time {entry.timestamp}"
    )


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


class Reindexing:
    """The new index entries of one segment, as far as it was scanned.

    The long scan of the existing batches needs no lock. The short scan of later appends, and the
    replacement of the entries, need the log lock. Only the framing and the order of offsets are
    checked: a batch with a wrong checksum is indexed too, and reads of it fail.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._walked_bytes = 0
        self._indexed_position = 0
        self._next_offset = segment.base_offset
        self._maximum = NO_MAXIMUM
        self._entries: list[tuple[OffsetPosition, TimestampOffset]] = []

    def walk(self) -> None:
        """Continue the scan to the present end of the segment.

        Raises StoredDataCorrupt at the first impossible frame or descending offset.
        """
        segment = self._segment
        for at, header in segment.records.ascending_headers(
            self._walked_bytes, segment.size_bytes, next_offset=self._next_offset
        ):
            if header.max_timestamp > self._maximum.timestamp:
                self._maximum = TimestampOffset(header.max_timestamp, header.last_offset)
            if at - self._indexed_position > segment.index_interval_bytes:
                self._entries.append((OffsetPosition(header.last_offset, at), self._maximum))
                self._indexed_position = at
            self._walked_bytes = at + header.size_bytes
            self._next_offset = header.next_offset

    def install(self, *, is_active: bool) -> None:
        """Replace the entries; look-ups meanwhile are correct but slower.

        The segment must be scanned to its end, and the log lock held.
        """
        assert self._walked_bytes == self._segment.size_bytes, "the log lock is held"
        self._segment.replace_entries(self._entries, self._maximum)
        if not is_active:
            self._segment.seal()


def base_offset_of_index(error: CorruptIndex) -> int:
    """Return the base offset of the segment whose sparse index failed; raise `error` otherwise."""
    name = Path(str(error.facts()["file"])).name
    base_offset = names.base_offset_of(name)
    if base_offset is None or name == names.txn_index_name(base_offset):
        raise error
    return base_offset
