"""A segment after a crash is cut or split: what is whole is kept.

Recovery depends only on the segment and the state below it. Like Kafka, it truncates at the first
invalid batch, torn or damaged, but it reports which of the two it was. Mirrors
`LogSegment.recover`.

The plan of a truncation changes nothing. Batches are located as for reads, without a lock. Index
entries found on disk are verified before use, because an index has no checksum: if one is wrong,
the truncation fails before it has changed anything, and the index can be rebuilt.

Old brokers could write segments with offsets that are too large for their indexes, with base offset
0 and an offset above 2**31 - 1 for example. A split copies the batches unchanged into new segments,
each named after its first batch (`LocalLog.splitOverflowedSegment`, `LogSegment.appendFromFile`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from engine.errors import CorruptBatch, InvalidRecord, InvalidRequestValue, SegmentOverflow
from engine.records.batch import BatchView
from engine.records.control import EndMarker, parse_end_marker
from engine.records.header import BatchHeader, frame_size
from engine.records.scan import Tail
from engine.segment.file_records import FileRecords
from engine.segment.index_checks import ensure_true
from engine.segment.segment import NO_MAXIMUM, Segment, SegmentCut
from engine.state.epochs import LeaderEpochCache
from engine.state.producers import ProducerStates
from engine.types import INT32_MAX, INT64_MAX, NO_TIMESTAMP, OffsetPosition, TimestampOffset

SCAN_CHUNK_BYTES: Final = 1024 * 1024
"""How much of a segment is read and verified at once; a larger batch is read whole."""


@dataclass(frozen=True, slots=True)
class SegmentRecovery:
    """The result of the recovery of one segment."""

    scanned_bytes: int
    truncated_bytes: int
    tail: Tail
    reason: str | None
    """What follows the last valid batch; None for a clean tail."""
    next_offset: int
    """The offset after the last valid batch."""


class _Walk:
    """Yields the intact batches of a file, and keeps where and why it stopped."""

    def __init__(self, records: FileRecords, base_offset: int) -> None:
        self._records = records
        self.valid_bytes = 0
        self.tail = Tail.CLEAN
        self.reason: str | None = None
        self.next_offset = base_offset

    def __iter__(self) -> Iterator[tuple[int, BatchView]]:
        size = self._records.size_bytes
        chunk: memoryview = memoryview(b"")
        start = 0
        while self.valid_bytes < size:
            at = self.valid_bytes
            try:
                needed = frame_size(chunk, at - start)
                if needed is None or at - start + needed > len(chunk):
                    length = self._length_to_read(at, size, needed)
                    start, chunk = at, memoryview(self._records.read(at, length))
                    if at + length < size:  # read ahead while these bytes are verified
                        self._records.file.prefetch(at + length, SCAN_CHUNK_BYTES)
                    needed = frame_size(chunk, 0)
                if needed is None or needed > size - at:
                    self._stop(Tail.TORN, f"{size - at} bytes of an unfinished batch at byte {at}")
                    return
                if needed > len(chunk) - (at - start):
                    start, chunk = at, memoryview(self._records.read(at, needed))
                batch = BatchView(chunk, at - start)
                batch.ensure_intact()
                self._ensure_ascending(batch)
            except CorruptBatch as error:
                tail = Tail.TORN if self._records.is_zeros_from(at) else Tail.DAMAGED
                self._stop(tail, f"{error} (byte {at})")
                return
            yield at, batch
            self.valid_bytes = at + batch.header.size_bytes
            self.next_offset = batch.header.next_offset

    @staticmethod
    def _length_to_read(at: int, size: int, needed: int | None) -> int:
        return min(size - at, max(SCAN_CHUNK_BYTES, needed or 0))

    def _ensure_ascending(self, batch: BatchView) -> None:
        if batch.header.base_offset < self.next_offset or batch.header.last_offset_delta < 0:
            raise CorruptBatch(
                f"a batch of offsets {batch.header.base_offset} to {batch.header.last_offset}, "
                f"but {self.next_offset} is next"
            )

    def _stop(self, tail: Tail, reason: str) -> None:
        self.tail = tail
        self.reason = reason


def recover_segment(
    segment: Segment,
    producers: ProducerStates,
    epochs: LeaderEpochCache | None,
    *,
    keeps_tail: bool = False,
    before_cut: Callable[[], None] | None = None,
    following: int = INT64_MAX,
) -> SegmentRecovery:
    """Rebuild the indexes, update the state, and cut the file after its last intact batch.

    `producers` must hold the state below the segment. `before_cut` is called before a cut, to
    remove the later segments first; otherwise a crash in between would leave a gap. With
    `keeps_tail`, for segments below the recovery point, nothing is cut, and anything that ends the
    scan is damage.

    Raises SegmentOverflow if an offset is too large for the indexes, unless the next batch or the
    `following` segment has a lower one: then the offset is damaged.
    """
    if not keeps_tail:
        # The scan must read what is really on disk, because readers will see it and later starts
        # trust it.
        segment.records.file.forget_cached()
    size = segment.size_bytes
    segment.reset_for_recovery()
    walk = _Walk(segment.records, segment.base_offset)
    last_indexed = 0
    interval = segment.index_interval_bytes
    for position, batch in walk:
        header = batch.header
        if _is_misplaced(segment, position, header, following):
            walk.tail, walk.reason = Tail.DAMAGED, f"offset {header.last_offset} is impossible"
            break
        try:  # before the batch is recorded: the scan may end at it
            aborted = producers.observe(header, marker_of(batch))
        except InvalidRecord as error:
            walk.tail, walk.reason = Tail.DAMAGED, str(error)
            break
        segment.observe_maximum(header.max_timestamp, header.last_offset)
        if position - last_indexed > interval:
            segment.index_position(OffsetPosition(header.last_offset, position))
            last_indexed = position
        if epochs is not None and header.leader_epoch >= 0:
            _note_epoch(epochs, header)
        if aborted is not None:
            segment.indexes.transaction.append(aborted)
    if before_cut is not None and walk.valid_bytes < size:
        before_cut()
    if keeps_tail and walk.valid_bytes < size:
        segment.seal()
        return SegmentRecovery(walk.valid_bytes, 0, Tail.DAMAGED, walk.reason, walk.next_offset)
    segment.records.truncate(walk.valid_bytes)
    segment.seal()
    segment.mark_indexes_made()
    cut = size - walk.valid_bytes
    return SegmentRecovery(walk.valid_bytes, cut, walk.tail, walk.reason, walk.next_offset)


def marker_of(batch: BatchView) -> EndMarker | None:
    """Return the marker in a control batch; None for every other batch.

    Raises InvalidRecord if it is malformed.
    """
    if not batch.header.is_control:
        return None
    return parse_end_marker(batch)


def _note_epoch(epochs: LeaderEpochCache, header: BatchHeader) -> None:
    """Record where an epoch begins: a truncation may have left a later offset in the file."""
    latest = epochs.latest
    if latest is None or header.leader_epoch >= latest.epoch:
        epochs.assign(header.leader_epoch, header.base_offset)


def _is_misplaced(segment: Segment, position: int, header: BatchHeader, following: int) -> bool:
    """Whether an offset is damaged; SegmentOverflow if it is correct but too large."""
    if header.last_offset - segment.base_offset <= INT32_MAX:
        return False
    next_base = segment.records.base_offset_at(position + header.size_bytes)
    if header.last_offset >= min(following, INT64_MAX if next_base is None else next_base):
        return True
    raise SegmentOverflow(
        f"offset {header.last_offset} is too far from base offset {segment.base_offset}",
        segment=str(segment.records.path),
        offset=header.last_offset,
    )


COPY_BYTES: Final = 1024 * 1024
"""How much is copied in one append, and covered by at most one index entry."""


def has_overflow(segment: Segment) -> bool:
    """Whether the segment's last offset is too far from its base offset."""
    last_offset = segment.base_offset - 1
    for _, header in segment.headers():
        last_offset = header.last_offset
    return last_offset - segment.base_offset > INT32_MAX


def split_overflowed(segment: Segment, create: Callable[[int], Segment]) -> list[Segment]:
    """Return new segments, sealed and synced, that together hold the bytes of `segment`.

    `create` creates an empty segment with the given base offset, whose files are not live yet.
    Raises InvalidRequestValue for a segment that needs no split.
    """
    if not has_overflow(segment):
        raise InvalidRequestValue(f"{segment} needs no split")
    modified_ms = segment.modified_ms
    parts: list[Segment] = []
    position = 0
    while position < segment.size_bytes:
        _, first = next(segment.headers(position))
        part = create(segment.records.first_offset(position, first))
        parts.append(part)
        position += append_from(part, segment, position)
    assert sum(part.size_bytes for part in parts) == segment.size_bytes, "a split loses nothing"
    for part in parts:
        part.seal()
        part.flush()
        part.set_modified_ms(modified_ms)
    return parts


def append_from(target: Segment, source: Segment, position: int) -> int:
    """Copy batches of `source` from `position` on, while their offsets fit into `target`.

    Returns the bytes copied.
    """
    copied = 0
    while position + copied < source.size_bytes:
        taken = _take(target, source, position + copied)
        if not taken:
            break
        size = sum(header.size_bytes for header in taken)
        maximum = _maximum(taken)
        data = source.records.read(position + copied, size)
        target.append(data, taken[-1].last_offset, maximum.timestamp, maximum.offset)
        copied += size
    return copied


def _take(target: Segment, source: Segment, position: int) -> list[BatchHeader]:
    """Return the headers of the next batches to copy; a single batch may exceed the size."""
    taken: list[BatchHeader] = []
    size = 0
    for _, header in source.headers(position):
        if header.last_offset - target.base_offset > INT32_MAX:
            break
        if taken and size + header.size_bytes > COPY_BYTES:
            break
        taken.append(header)
        size += header.size_bytes
    return taken


def _maximum(headers: list[BatchHeader]) -> TimestampOffset:
    """Return the largest timestamp and the last offset of the first batch that has it."""
    maximum = TimestampOffset(NO_TIMESTAMP, headers[0].last_offset)
    for header in headers:
        if header.max_timestamp > maximum.timestamp:
            maximum = TimestampOffset(header.max_timestamp, header.last_offset)
    return maximum


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
