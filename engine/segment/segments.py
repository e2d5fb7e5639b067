"""The ordered map of segments: base offset to segment, with immutable snapshots for readers.

Changes need the log lock. Readers take `snapshot`, matching tuples of base offsets and segments,
and search it without a lock. Mirrors Kafka's `LogSegments`, a concurrent skip list. A log has few
segments and rarely changes them, so a copy for each change is cheap compared with its file system
calls.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from sortedcontainers import SortedDict

from engine.segment.segment import Segment


class SegmentSnapshot(NamedTuple):
    """All segments at one moment, ascending; both tuples have the same length."""

    base_offsets: tuple[int, ...]
    segments: tuple[Segment, ...]

    def floor_index(self, offset: int) -> int:
        """Return the index of the last segment at or below `offset`, or -1."""
        return bisect_right(self.base_offsets, offset) - 1


NO_SEGMENTS: Final = SegmentSnapshot((), ())


class Segments:
    """The segments of one log. Changes need the log lock, reads do not."""

    active: Segment
    """The last segment, which takes the appends. A log always has one."""

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._by_base_offset: SortedDict[int, Segment] = SortedDict()
        self.snapshot = NO_SEGMENTS
        for segment in segments:
            self._by_base_offset[segment.base_offset] = segment
        self._publish()

    def add(self, segment: Segment) -> None:
        """Add a segment; it replaces one with the same base offset."""
        self._by_base_offset[segment.base_offset] = segment
        self._publish()

    def remove(self, base_offset: int) -> None:
        """Remove a segment; a missing one is ignored."""
        if self._by_base_offset.pop(base_offset, None) is not None:
            self._publish()

    def replace(self, added: Iterable[Segment], removed: Iterable[Segment]) -> None:
        """Remove segments and add others, atomically for readers."""
        for segment in removed:
            del self._by_base_offset[segment.base_offset]
        for segment in added:
            self._by_base_offset[segment.base_offset] = segment
        self._publish()

    def clear(self) -> None:
        self._by_base_offset.clear()
        self._publish()

    def _publish(self) -> None:
        """Publish the present map to readers."""
        self.snapshot = SegmentSnapshot(
            tuple(self._by_base_offset.keys()), tuple(self._by_base_offset.values())
        )
        if self.snapshot.segments:
            self.active = self.snapshot.segments[-1]

    def __len__(self) -> int:
        return len(self.snapshot.segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.snapshot.segments)

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._by_base_offset

    @property
    def first(self) -> Segment:
        return self.snapshot.segments[0]

    @property
    def first_base_offset(self) -> int:
        return self.snapshot.base_offsets[0]

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return self.snapshot.base_offsets

    @property
    def size_bytes(self) -> int:
        """The bytes of all `.log` files."""
        return sum(segment.size_bytes for segment in self.snapshot.segments)

    def get(self, base_offset: int) -> Segment | None:
        segment: Segment | None = self._by_base_offset.get(base_offset)
        return segment

    def floor(self, offset: int) -> Segment | None:
        """Return the last segment whose base offset is at or below `offset`."""
        index = self.snapshot.floor_index(offset)
        return self.snapshot.segments[index] if index >= 0 else None

    def higher(self, offset: int) -> Segment | None:
        """Return the first segment whose base offset is above `offset`."""
        snapshot = self.snapshot
        index = bisect_right(snapshot.base_offsets, offset)
        return snapshot.segments[index] if index < len(snapshot.segments) else None

    def ceiling(self, offset: int) -> Segment | None:
        """Return the first segment whose base offset is at or above `offset`."""
        snapshot = self.snapshot
        index = bisect_left(snapshot.base_offsets, offset)
        return snapshot.segments[index] if index < len(snapshot.segments) else None

    def overlapping(self, start: int, end: int) -> tuple[Segment, ...]:
        """Return the segments that may hold offsets of [start, end)."""
        snapshot = self.snapshot
        first = max(0, snapshot.floor_index(start))
        return snapshot.segments[first : bisect_left(snapshot.base_offsets, end)]

    def above(self, offset: int) -> tuple[Segment, ...]:
        """Return the segments whose base offset is above `offset`."""
        snapshot = self.snapshot
        return snapshot.segments[bisect_right(snapshot.base_offsets, offset) :]

    def check_invariants(self) -> None:
        """Fail unless there is an active segment and base offsets and contents ascend."""
        segments = self.snapshot.segments
        assert segments, "a log always has an active segment"
        assert self.snapshot.base_offsets == tuple(s.base_offset for s in segments)
        for earlier, later in pairwise(segments):
            assert earlier.base_offset < later.base_offset, (earlier, later)
            assert earlier.read_next_offset() <= later.base_offset, (earlier, later)


def close_all(segments: Iterable[Segment]) -> None:
    """Close the files of segments without writing anything."""
    for segment in segments:
        segment.close_handles()
