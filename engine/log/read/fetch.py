"""The rules of a read: whole batches, at least one, within a byte budget and an offset bound.

A read uses one snapshot of watermarks and segments and needs no lock. Kafka's `LocalLog.read`
returns a slice of one segment that may end inside a batch. This one also finds the end of the last
whole batch in the index, and continues in the next segment while the budget lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from engine.errors import (
    ArchiveUnavailable,
    InvalidRequestValue,
    OffsetBelowLogStart,
    OffsetBeyondLogEnd,
    StoredDataCorrupt,
)
from engine.log.read.aborted import (
    aborted_in,
    has_transactions,
    transactions_in,
    without_undelivered,
)
from engine.log.results import Fetched, ReadEnd, ReadPath
from engine.log.state import LogView
from engine.records.scan import iter_headers
from engine.segment.file_records import BatchPosition
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.state.watermarks import Watermarks
from engine.types import Buffer, FetchIsolation, OffsetMetadata, OffsetPosition


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The parameters of a read; `end_offset` is exclusive."""

    offset: int
    max_bytes: int
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    end_offset: int | None = None
    minimum_one_batch: bool = True
    cached_only: bool = False
    max_check_bytes: int | None = None
    """About how many bytes a read_committed read may scan to verify transaction indexes."""


class _Piece(NamedTuple):
    data: Buffer
    entry: OffsetPosition
    """The index entry that led to the first batch."""
    first: BatchPosition
    next_offset: int
    ended_by: ReadEnd | None
    """Why the read ends here; None if it may continue in the next segment."""


def ensure_in_range(offset: int, marks: Watermarks, bound: int | None = None) -> None:
    """Raise unless `offset` can be read; the log end, or `bound`, is allowed."""
    if offset < marks.log_start_offset:
        raise OffsetBelowLogStart(
            f"offset {offset} is below the log start {marks.log_start_offset}",
            **_facts(offset, marks),
        )
    if offset > marks.log_end_offset:
        raise OffsetBeyondLogEnd(
            f"offset {offset} is beyond the log end {marks.log_end_offset}", **_facts(offset, marks)
        )
    if bound is not None and offset > bound:
        raise OffsetBeyondLogEnd(
            f"offset {offset} is beyond the readable end, {bound}", **_facts(offset, marks)
        )


def ensure_known(offset: int, segments: SegmentSnapshot) -> None:
    """Raise ArchiveUnavailable if only the archive has the offset, and is not known.

    The offset is not below the log start.
    """
    first = segments.base_offsets[0]
    if offset < first:
        raise ArchiveUnavailable(
            f"offset {offset} is in the archive only, which was not read yet: the disk has the "
            f"offsets from {first} on. Try again later; if it stays so, /readyz says why",
            offset=offset,
            local_log_start_offset=first,
        )


def deletion_target(before_offset: int, marks: Watermarks) -> int:
    """Return the new log start for a deletion below an offset; -1 deletes all committed records.

    Raises InvalidRequestValue for other negative offsets, OffsetBeyondLogEnd above the high
    watermark.
    """
    target = marks.high_watermark if before_offset == -1 else before_offset
    if target < 0:
        raise InvalidRequestValue(f"before_offset must be -1 or an offset, not {before_offset}")
    if target > marks.high_watermark:
        raise OffsetBeyondLogEnd(
            f"offset {target} is beyond the high watermark {marks.high_watermark}",
            **_facts(target, marks),
        )
    return target


def _facts(offset: int, marks: Watermarks) -> dict[str, int]:
    return {
        "offset": offset,
        "log_start_offset": marks.log_start_offset,
        "high_watermark": marks.high_watermark,
        "last_stable_offset": marks.last_stable_offset,
        "log_end_offset": marks.log_end_offset,
    }


def fetch(request: ReadRequest, view: LogView) -> Fetched:
    """Return the batches for `request`.

    Raises OffsetBelowLogStart, OffsetBeyondLogEnd, StoredDataCorrupt, ArchiveUnavailable, and
    NotCached if `cached_only` and the data is not in memory.
    """
    segments, marks, leader_epoch, _ = view
    ensure_in_range(request.offset, marks)
    ensure_known(request.offset, segments)
    bound = marks.bound(request.isolation)
    if request.end_offset is not None and request.offset >= request.end_offset:
        return Fetched(
            b"", None, request.offset, marks, leader_epoch, ReadEnd.END_OFFSET, None, segments
        )
    pieces, ended_by = _pieces(request, segments, bound)
    path = _path_of(segments, pieces[0]) if pieces else None
    next_offset = pieces[-1].next_offset if pieces else request.offset
    read_to = next_offset
    if ended_by not in {ReadEnd.MAX_BYTES, ReadEnd.DAMAGE}:
        # Compaction may leave a gap between the last batch and the end; it counts as read.
        ends = [bound.offset] if request.end_offset is None else [bound.offset, request.end_offset]
        next_offset = max(next_offset, min(ends))
    if request.end_offset is not None and next_offset >= request.end_offset:
        ended_by = ReadEnd.END_OFFSET
    data = pieces[0].data if len(pieces) == 1 else b"".join(piece.data for piece in pieces)
    first_offset = pieces[0].first.base_offset if pieces else None
    if request.isolation is FetchIsolation.TXN_COMMITTED and has_transactions(data):
        told = transactions_in(data)
        if told.waiting:
            told.aborted.extend(
                aborted_in(
                    segments.segments[segments.floor_index(request.offset) :],
                    request.offset,
                    read_to,
                    producers=told.waiting,
                    cached_only=request.cached_only,
                    max_check_bytes=request.max_check_bytes,
                )
            )
        data = without_undelivered(data, told.aborted)
    return Fetched(
        data,
        first_offset,
        next_offset,
        marks,
        leader_epoch,
        ended_by,
        path,
        segments,
        is_verified=True,
    )


def _pieces(
    request: ReadRequest, segments: SegmentSnapshot, bound: OffsetMetadata
) -> tuple[list[_Piece], ReadEnd]:
    """Return what the read finds, segment by segment, and why it ends.

    It ends before damage; StoredDataCorrupt if the first batch is damaged.
    """
    pieces: list[_Piece] = []
    next_offset, budget = request.offset, request.max_bytes
    index = segments.floor_index(request.offset)
    while next_offset < bound.offset and 0 <= index < len(segments.segments):
        segment = segments.segments[index]
        index += 1
        try:
            piece = _read_segment(request, segment, next_offset, budget, bound, is_first=not pieces)
            if isinstance(piece, _Piece):
                bounds = (*segments.base_offsets[index : index + 1], bound.offset)
                piece = _within(piece, segment, min(bounds))
        except StoredDataCorrupt:
            if not pieces:
                raise
            return pieces, ReadEnd.DAMAGE
        if isinstance(piece, ReadEnd):
            return pieces, piece
        if piece is not None:
            pieces.append(piece)
            budget -= len(piece.data)
            next_offset = piece.next_offset
            if piece.ended_by is not None:
                return pieces, piece.ended_by
    return pieces, ReadEnd.LOG_BOUND


def _read_segment(
    request: ReadRequest,
    segment: Segment,
    offset: int,
    budget: int,
    bound: OffsetMetadata,
    *,
    is_first: bool,
) -> _Piece | ReadEnd | None:
    """Read from one segment: return a piece, the reason why the read ends, or None to continue."""
    end = readable_end(segment, bound)
    entry, first = segment.look_up(offset, end, cached_only=request.cached_only)
    if first is None:
        return None
    if request.end_offset is not None and first.base_offset >= request.end_offset:
        return ReadEnd.END_OFFSET
    size = first.end - first.position
    if size > budget and not (is_first and request.minimum_one_batch):
        return ReadEnd.MAX_BYTES
    limit = min(end, max(first.end, first.position + budget))
    last = _stop_position(request, segment, first, end)
    limit = min(limit, last)
    read = partial(segment.read, first.position, cached_only=request.cached_only, sought=offset)
    try:
        if limit in (last, first.end):  # a batch ends there
            data, next_offset = read(limit)
            stop = OffsetPosition(next_offset, limit)
        else:
            stop = segment.end_of_batches(first, limit, end, cached_only=request.cached_only)
            data, _ = read(stop.position)
    except StoredDataCorrupt as error:
        data = _intact_before(error, first, read)
        *_, (_, last_header) = iter_headers(data)
        return _Piece(data, entry, first, last_header.next_offset, ReadEnd.DAMAGE)
    ended_by = ReadEnd.MAX_BYTES if stop.position < end else None
    if last <= stop.position < end:
        ended_by = ReadEnd.END_OFFSET
    return _Piece(data, entry, first, stop.offset, ended_by)


def _intact_before(
    error: StoredDataCorrupt, first: BatchPosition, read: Callable[[int], tuple[Buffer, int]]
) -> Buffer:
    """Return the batches from `first` to the damage; raise `error` if there are none.

    `read` returns those before a position. It verifies them on the way and may find damage before
    the damage, for an error of `end_of_batches` above all, which reads headers only.
    """
    while error.position > first.position:
        try:
            return read(error.position)[0]
        except StoredDataCorrupt as earlier:
            error = earlier
    raise error


def _within(piece: _Piece, segment: Segment, end_offset: int) -> _Piece:
    """Return the batches that fit into their segment: those before the first one that does not.

    They end at or below `end_offset`, of the next segment or the read's bound. Raises
    StoredDataCorrupt if the first one does not fit.
    """
    if piece.next_offset <= end_offset and piece.first.base_offset >= segment.base_offset:
        return piece
    fit_bytes, next_offset = 0, piece.first.base_offset
    for position, header in iter_headers(piece.data):
        if header.base_offset < segment.base_offset or header.next_offset > end_offset:
            break
        fit_bytes, next_offset = position + header.size_bytes, header.next_offset
    if not fit_bytes:
        raise segment.records.damaged(
            f"offsets {piece.first.base_offset} to {piece.next_offset - 1} are not in this segment",
            piece.first.position,
            piece.first.base_offset,
        )
    return piece._replace(
        data=piece.data[:fit_bytes], next_offset=next_offset, ended_by=ReadEnd.DAMAGE
    )


def readable_end(segment: Segment, bound: OffsetMetadata) -> int:
    """Return the position at which a reader must stop in this segment."""
    if bound.is_offset_only:  # without a position, the whole segment is hidden
        found = segment.locate(bound.offset)
        return segment.size_bytes if found is None else found.position
    if segment.base_offset < bound.segment_base_offset:
        return segment.size_bytes
    return bound.position if segment.base_offset == bound.segment_base_offset else 0


def _stop_position(request: ReadRequest, segment: Segment, first: BatchPosition, end: int) -> int:
    """Return the position after the last batch that holds an offset below `end_offset`."""
    if request.end_offset is None:
        return end
    if first.last_offset >= request.end_offset - 1:
        return first.end
    at_end = segment.locate(request.end_offset, end, cached_only=request.cached_only)
    if at_end is None:
        return end
    return at_end.end if at_end.base_offset < request.end_offset else at_end.position


def _path_of(segments: SegmentSnapshot, piece: _Piece) -> ReadPath:
    entry, position = piece.entry, piece.first.position
    return ReadPath(
        segments.base_offsets[segments.floor_index(piece.first.base_offset)],
        entry.offset,
        entry.position,
        position,
        max(0, position - entry.position),
    )
