"""The files of one segment as a download gets them: opened once, never beyond a mark.

What is shown of a file is fixed when it is opened: the log up to the high watermark, an index up to
its last entry that leads there. A file that compaction replaces or retention removes meanwhile is
read to its end; one that is cut meanwhile is not read on.
"""

from __future__ import annotations

import enum
import hashlib
from typing import NamedTuple

from engine.errors import SegmentNotFound, StoredDataCorrupt
from engine.log.read.fetch import readable_end
from engine.log.results import SegmentInfo
from engine.log.view import LogView
from engine.segment.file_records import BatchPosition
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.state.watermarks import Watermarks
from engine.types import Buffer


class FileKind(enum.Enum):
    """Which file of a segment; the value is the end of its name."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"


class SegmentFile(NamedTuple):
    """A file as it is shown; `LogReader.read_file` reads it."""

    segment: Segment
    size_bytes: int
    version: str
    """Within one `log_id` and kind: equal only if the bytes are."""
    content: bytes | None
    """The whole index, copied at once: it may be rebuilt at any other time."""
    marks: Watermarks
    """As they were when it was opened."""
    next_offset: int
    """Where what is shown of the segment ends; the base offset of the next one, if there is one."""
    truncations: int
    """What `LogState.truncations` was."""


def listed(view: LogView) -> list[SegmentInfo]:
    """Return all segments, oldest first; each ends where the next begins, the last with the log."""
    segments, marks, *_ = view
    active = segments.segments[-1]
    ends = (*segments.base_offsets[1:], max(active.base_offset, marks.log_end_offset))
    return [
        SegmentInfo(
            segment.base_offset,
            end,
            segment.size_bytes,
            segment.largest_timestamp,
            segment.modified_ms,
            segment is active,
            segment.indexes.has_transactions,
        )
        for segment, end in zip(segments.segments, ends, strict=True)
    ]


def open_file(base_offset: int, kind: FileKind, view: LogView) -> SegmentFile:
    """Return a file of the segment that begins at `base_offset`.

    Raises SegmentNotFound if there is none, if all of it lies below the log start and only waits
    for its removal, or if it has no index of transactions. May read an index interval of the log.
    """
    segments, marks, _, truncations = view
    segment, next_offset = _find(base_offset, segments, marks)
    size_bytes = readable_end(segment, marks.high)
    content = None
    if kind is FileKind.LOG:
        version = f"{segment.records.file.version()}-{size_bytes:x}"
    else:
        content = _index_content(segment, kind, size_bytes, marks)
        size_bytes = len(content)
        version = hashlib.blake2s(content, digest_size=16).hexdigest()
    return SegmentFile(segment, size_bytes, version, content, marks, next_offset, truncations)


def _find(base_offset: int, segments: SegmentSnapshot, marks: Watermarks) -> tuple[Segment, int]:
    """Return the segment, and the offset after its committed part."""
    index = segments.floor_index(base_offset)
    if index >= 0 and segments.base_offsets[index] == base_offset:
        following = segments.base_offsets[index + 1 : index + 2]
        if not following or following[0] > marks.log_start_offset:
            end = max(base_offset, min((marks.high_watermark, *following)))
            return segments.segments[index], end
    raise SegmentNotFound(f"no segment begins at {base_offset}", base_offset=base_offset)


def _index_content(segment: Segment, kind: FileKind, end: int, marks: Watermarks) -> bytes:
    indexes = segment.indexes
    if kind is FileKind.OFFSET_INDEX:
        return indexes.offset.content_below(end)
    if kind is FileKind.TIME_INDEX:
        return indexes.time.content_below(marks.high_watermark)
    if not indexes.has_transactions:
        raise SegmentNotFound(
            f"segment {segment.base_offset} has no index of transactions: none was aborted in it",
            base_offset=segment.base_offset,
        )
    return indexes.transaction.content_below(marks.high_watermark)


def read_log(segment: Segment, position: int, max_bytes: int, end: int) -> Buffer:
    """Return bytes of the log file from `position` on: at least one, none at or behind `end`.

    They end with a batch, and are `max_bytes` at the most unless the first batch ends later. Each
    batch that was found on disk is verified as a whole, even if only the end of it is returned.
    Raises StoredDataCorrupt, or CorruptIndex if the index leads nowhere.
    """
    first = batch_at(segment, position, end)
    stop = segment.end_of_batches(first, min(end, position + max_bytes), end)
    data = segment.read(first.position, stop.position, sought=first.base_offset)
    return memoryview(data)[position - first.position :] if position > first.position else data


class FileCheck(NamedTuple):
    """How far a check came, and what it found on the way."""

    next_position: int
    """Always where a batch begins, or the end of what was to be checked."""
    damage: tuple[StoredDataCorrupt, ...]


def check_log(segment: Segment, position: int, max_bytes: int, end: int) -> FileCheck:
    """Verify each batch in [position, end), as far as `max_bytes` go and one batch at least.

    A batch whose checksum is wrong is passed over; behind one that has no end nothing is checked.
    """
    damage: list[StoredDataCorrupt] = []
    try:
        for at, header in segment.headers(position, end):
            if at > position and at + header.size_bytes > position + max_bytes:
                return FileCheck(at, tuple(damage))
            try:
                segment.records.intact_batch(at, header)
            except StoredDataCorrupt as error:
                damage.append(error)
    except StoredDataCorrupt as error:
        damage.append(error)
    return FileCheck(end, tuple(damage))


def batch_at(segment: Segment, position: int, end: int) -> BatchPosition:
    """Return the batch that holds the byte at `position`, below `end`; both of the log file.

    Raises StoredDataCorrupt, or CorruptIndex if the index leads nowhere.
    """
    index = segment.indexes.offset
    start = index.floor_by_position(position).position
    segment.proofs.ensure_batch_at(start, index)
    at, header = next(
        (at, header)
        for at, header in segment.headers(start, end)
        if at + header.size_bytes > position
    )
    base_offset = segment.records.first_offset(at, header)
    return BatchPosition(base_offset, header.last_offset, at, at + header.size_bytes)
