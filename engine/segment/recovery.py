"""Recovers one segment from its log file.

It depends only on the segment and the state below it. Like Kafka, it truncates at the first invalid
batch, torn or damaged, but it reports which of the two it was. Mirrors `LogSegment.recover`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from engine.errors import CorruptBatch, InvalidRecord, SegmentOverflow
from engine.records.batch import BatchView
from engine.records.control import EndMarker, parse_end_marker
from engine.records.header import BatchHeader, frame_size
from engine.records.scan import Tail
from engine.segment.file_records import FileRecords
from engine.segment.segment import Segment
from engine.state.epochs import LeaderEpochCache
from engine.state.producers import ProducerStates
from engine.types import INT32_MAX, INT64_MAX, OffsetPosition

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
