"""A range of offsets as bytes across segments, and how it is cut into parts of about equal size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from engine.log.read.fetch import readable_end
from engine.log.read.segment_files import batch_at
from engine.segment.file_records import BatchPosition
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.types import INT64_MAX, OffsetMetadata


class Split(NamedTuple):
    """A range of offsets, end exclusive, and the bytes to read for it."""

    start_offset: int
    end_offset: int
    size_bytes: int
    """The bytes of the whole batches that a read of it returns; read_committed may return fewer."""


class _Place(NamedTuple):
    """A boundary between two batches: the offset after it, and the readable bytes before it."""

    offset: int
    position: int


class Extent:
    """A range of offsets as one sequence of bytes across its segments."""

    def __init__(
        self, start_offset: int, end_offset: int, bound: OffsetMetadata, segments: SegmentSnapshot
    ) -> None:
        """Look up both ends. The end is neither below the start nor above the bound."""
        assert start_offset <= end_offset <= bound.offset
        first = max(0, segments.floor_index(start_offset))
        last = max(first, segments.floor_index(end_offset))
        self._segments: Sequence[Segment] = segments.segments[first : last + 1]
        self._base_offsets = segments.base_offsets[first : last + 1]
        self._ends = [readable_end(segment, bound) for segment in self._segments]
        self._starts = [0, *accumulate(self._ends)]
        start = self._position_of(start_offset)
        self._start = _Place(start_offset, start)
        # The batch that holds the last offset belongs to the range, even if it ends after it.
        self._end = _Place(end_offset, max(start, self._position_behind(end_offset - 1)))

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches that hold an offset of the range."""
        return self._end.position - self._start.position

    def cut(self, parts: int, max_offsets: int | None = None) -> Iterator[Split]:
        """Yield the range in `parts` of about equal size; fewer if batches are large.

        The parts ascend, without gap or overlap. With `max_offsets` they are cut further, until
        none spans more offsets, unless a single batch does.
        """
        limit = INT64_MAX if max_offsets is None else max_offsets
        start = self._start
        while start.offset < self._end.offset:
            stop = self._end
            if parts > 1:
                # Of the rest of the range, so that one large batch does not distort the later
                # parts.
                stop = self._near(start, start.position + (stop.position - start.position) // parts)
                parts -= 1
            while stop.offset - start.offset > limit:
                middle = self._at(start, start.offset + limit)
                if middle.offset >= stop.offset:
                    break
                yield _split(start, middle)
                start = middle
            yield _split(start, stop)
            start = stop

    def _near(self, after: _Place, position: int) -> _Place:
        """Return the boundary nearest to a byte position, above `after`."""
        index = bisect_right(self._starts, position, hi=len(self._ends)) - 1
        start, end = self._starts[index], self._ends[index]
        if position - start >= end:
            return self._end  # only a gap is left
        batch = batch_at(self._segments[index], position - start, end)
        first = _Place(batch.base_offset, start + batch.position)
        behind = _Place(batch.last_offset + 1, start + batch.end)
        is_first_nearer = position - first.position <= behind.position - position
        nearest = first if is_first_nearer and first.offset > after.offset else behind
        return min(nearest, self._end)

    def _at(self, after: _Place, offset: int) -> _Place:
        """Return the last boundary above `after` and at or before `offset`, or the first above."""
        index, found = self._locate(offset)
        start = self._starts[index]
        if found is None:
            return _Place(offset, start + self._ends[index])
        if found.base_offset >= offset:
            return _Place(offset, start + found.position)
        if found.base_offset > after.offset:
            return _Place(found.base_offset, start + found.position)
        return _Place(found.last_offset + 1, start + found.end)

    def _locate(self, offset: int) -> tuple[int, BatchPosition | None]:
        """Return the index of an offset's segment, and the first batch at or after the offset."""
        index = max(0, bisect_right(self._base_offsets, offset) - 1)
        return index, self._segments[index].locate(offset, self._ends[index])

    def _position_of(self, offset: int) -> int:
        """Return the start of the first batch that holds `offset` or a later one."""
        index, found = self._locate(offset)
        return self._starts[index] + (self._ends[index] if found is None else found.position)

    def _position_behind(self, offset: int) -> int:
        """Return the end of the last batch that holds `offset` or an earlier one."""
        index, found = self._locate(offset)
        if found is None:
            return self._starts[index] + self._ends[index]
        return self._starts[index] + (found.end if found.base_offset <= offset else found.position)


def _split(start: _Place, end: _Place) -> Split:
    return Split(start.offset, end.offset, end.position - start.position)
