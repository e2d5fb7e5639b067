"""Make one segment agree with its own log file, the only file believed.

A function of the segment and of the state below it; it returns what it found and knows nobody
above. Kafka truncates at the first bad batch whether it is torn or damaged, and so do we, but what
was found is told apart. Mirrors `LogSegment.recover`.
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
"""How much of a segment is read and checked at once; a larger batch is read whole."""


@dataclass(frozen=True, slots=True)
class SegmentRecovery:
    """What the scan of one segment found and did."""

    scanned_bytes: int
    truncated_bytes: int
    tail: Tail
    reason: str | None
    """What stands behind the last good batch; None for a clean tail."""
    next_offset: int
    """The offset after the last good batch."""


class _Walk:
    """Yields intact batches and remembers where and why it stopped."""

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
                    if at + length < size:  # the disk works while this is checked
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
                f"a batch of offsets {batch.header.base_offset} to {batch.header.last_offset} "
                f"where {self.next_offset} is next"
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
    """Rebuild the indexes, feed the state, and cut the file behind its last intact batch.

    `producers` must hold the state below the segment. `before_cut` is called if there is something
    to cut: what lies above must go first, or a crash in between would leave a gap. `keeps_tail` is
    for what was on disk for sure: nothing is cut, and whatever stops the scan is damage.

    Raises SegmentOverflow if the segment holds an offset its indexes cannot express; where the next
    one is lower, in the file or as the base offset of the `following` segment, it is damage.
    """
    if not keeps_tail:
        # What is found must be on the disk: it is going to be shown, and believed from then on.
        segment.records.file.forget_cached()
    size = segment.size_bytes
    segment.reset_for_recovery()
    walk = _Walk(segment.records, segment.base_offset)
    last_indexed = 0
    interval = segment.index_interval_bytes
    for position, batch in walk:
        header = batch.header
        if _is_misplaced(segment, position, header, following):
            walk.tail, walk.reason = Tail.DAMAGED, f"offset {header.last_offset} cannot be here"
            break
        try:  # before anything is noted of the batch: it may end here
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
    """Return what a control batch says about a transaction; None for every other batch.

    Raises InvalidRecord if it says it wrongly.
    """
    if not batch.header.is_control:
        return None
    return parse_end_marker(batch)


def _note_epoch(epochs: LeaderEpochCache, header: BatchHeader) -> None:
    """Note where an epoch begins; a truncation may have noted it too late, before its flush."""
    latest = epochs.latest
    if latest is None or header.leader_epoch >= latest.epoch:
        epochs.assign(header.leader_epoch, header.base_offset)


def _is_misplaced(segment: Segment, position: int, header: BatchHeader, following: int) -> bool:
    """Whether an offset is too large to be right; SegmentOverflow if it is, and yet too large."""
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
