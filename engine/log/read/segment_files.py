"""The files of one segment for downloads, opened once and bounded by the high watermark.

The end of a file is fixed when it is opened: the log ends at the high watermark, an index at its
last entry below it. A file that compaction replaces or retention removes meanwhile is read to its
end; reading stops if the log is truncated.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable
from typing import NamedTuple

from engine.errors import SegmentNotFound, StoredDataCorrupt
from engine.log.read.fetch import ensure_known, readable_end
from engine.log.results import CommittedSegment, Listing, SegmentInfo
from engine.log.state import LogView
from engine.segment.file_records import BatchPosition
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.state.watermarks import Watermarks
from engine.types import INT64_MAX, Buffer


class FileKind(enum.Enum):
    """The files of a segment; the value is the suffix of the name."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"


class SegmentFile(NamedTuple):
    """An opened file of a segment; `LogReader.read_file` reads it."""

    segment: Segment
    size_bytes: int
    version: str
    """A version of the bytes: files of one `log_id` and kind with equal versions have equal
    bytes."""
    content: bytes | None
    """A copy of the whole index, because it may be rebuilt at any time."""
    marks: Watermarks
    """The watermarks at opening."""
    next_offset: int
    """The end of the segment's visible part; the base offset of the next segment, if any."""
    truncations: int
    """The value of `LogState.truncations` at opening."""


def listed(view: LogView) -> Listing:
    """Return all segments, oldest first; each ends at the next one, the last at the log end."""
    segments, marks, *_ = view
    active = segments.segments[-1]
    ends = (*segments.base_offsets[1:], max(active.base_offset, marks.log_end_offset))
    infos = [
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
    return Listing(marks, infos)


def committed(view: LogView, version_of: Callable[[Segment], str]) -> list[CommittedSegment]:
    """Return what is committed of each segment that retention will not remove, oldest first.

    `version_of` is only asked for sealed segments.
    """
    segments, marks, *_ = view
    ends = (*segments.base_offsets[1:], None)
    found: list[CommittedSegment] = []
    for segment, end in zip(segments.segments, ends, strict=True):
        if end is not None and end <= marks.log_start_offset:
            continue
        is_sealed = end is not None and end <= marks.high_watermark
        found.append(
            CommittedSegment(
                segment.base_offset,
                max(segment.base_offset, min(marks.high_watermark, end or INT64_MAX)),
                segment.size_bytes if is_sealed else readable_end(segment, marks.high),
                *segment.maximum,
                is_sealed,
                version_of(segment) if is_sealed else "",
            )
        )
    return found


def open_file(base_offset: int, kind: FileKind, view: LogView) -> SegmentFile:
    """Return a file of the segment that begins at `base_offset`.

    Raises SegmentNotFound if it does not exist, if it lies below the log start and will be removed,
    or if it has no transaction index. May read an index interval of the log.
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
    if base_offset >= marks.log_start_offset:
        ensure_known(base_offset, segments)
    raise SegmentNotFound(f"no segment begins at {base_offset}", base_offset=base_offset)


def _index_content(segment: Segment, kind: FileKind, end: int, marks: Watermarks) -> bytes:
    indexes = segment.indexes
    if kind is FileKind.OFFSET_INDEX:
        return indexes.offset.content_below(end)
    if kind is FileKind.TIME_INDEX:
        return indexes.time.content_below(marks.high_watermark)
    if not indexes.has_transactions:
        raise SegmentNotFound(
            f"segment {segment.base_offset} has no transaction index: none was aborted in it",
            base_offset=segment.base_offset,
        )
    return indexes.transaction.content_below(marks.high_watermark)


def read_log(segment: Segment, position: int, max_bytes: int, end: int) -> Buffer:
    """Return bytes of the log file from `position` on: at least one, none at or after `end`.

    They end at the end of a batch, and exceed `max_bytes` only if the first batch ends later. Each
    batch is verified as a whole, even if only its end is returned. Raises StoredDataCorrupt, or
    CorruptIndex if the index does not point at a batch.
    """
    first = batch_at(segment, position, end)
    stop = segment.end_of_batches(first, min(end, position + max_bytes), end)
    data, _ = segment.read(first.position, stop.position, sought=first.base_offset)
    return memoryview(data)[position - first.position :] if position > first.position else data


class FileCheck(NamedTuple):
    """How far a check has come, and what it found."""

    next_position: int
    """The start of a batch, or the end of the range to check."""
    damage: tuple[StoredDataCorrupt, ...]


def check_log(segment: Segment, position: int, max_bytes: int, end: int) -> FileCheck:
    """Verify the batches in [position, end), at least one, up to about `max_bytes`.

    The check continues after a batch with a wrong checksum; it ends at one with an impossible
    length.
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
    """Return the batch that holds the byte at `position` of the log file, below `end`.

    Raises StoredDataCorrupt, or CorruptIndex if the index does not point at a batch.
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
