"""The time index: the offset from which to look for a timestamp.

An entry of 12 bytes says that no record of the segment up to this offset, inclusive, is later than
this timestamp. Timestamps strictly ascend, offsets never descend. Kafka's `TimeIndex`;
docs/formats/time-index.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, Final

from engine.errors import IndexFull, OffsetsOutOfOrder
from engine.index.sparse import Keys, SparseIndex
from engine.types import NO_TIMESTAMP, TimestampOffset

ENTRY: Final = Struct(
    ">"
    "q"  # timestamp in ms
    "i"  # offset minus the segment's base offset
)
_TIMESTAMP: Final = Keys(Struct(">q"), 0)
_OFFSET: Final = Keys(Struct(">i"), 8)

assert ENTRY.size == 12, "the entry is fixed by the file format"


class TimeIndex(SparseIndex[TimestampOffset]):
    """Timestamps in ms and offsets; one slot is reserved for the entry that seals a segment."""

    ENTRY: ClassVar[Struct] = ENTRY
    OFFSETS: ClassVar[Keys] = _OFFSET
    KEPT_FREE: ClassVar[int] = 1

    def maybe_append(self, timestamp: int, offset: int, *, skip_full: bool = False) -> None:
        """Record that no record up to `offset` is later than `timestamp`.

        Does nothing if the timestamp is -1 or not later than the last entry. `skip_full` is for the
        entry that seals the segment, which may use the last slot. IndexFull, OffsetsOutOfOrder,
        SegmentOverflow, or ValueError for a timestamp that went back; then nothing has changed.
        """
        self.ensure_takes(timestamp, offset, skip_full=skip_full)
        if timestamp > self._last.timestamp:
            self._store(timestamp, self._relative(offset))
            self._last = TimestampOffset(timestamp, offset)

    def ensure_takes(self, timestamp: int, offset: int, *, skip_full: bool = False) -> None:
        """Raise what `maybe_append` would raise for the same arguments; nothing changes."""
        self._ensure_open()
        last = self._last
        if self.is_full and not skip_full:
            raise self._full()
        if self._count:
            if offset < last.offset:
                raise OffsetsOutOfOrder(
                    f"offset {offset} is before {last.offset} in {self.path}",
                    offset=offset,
                    last_offset=last.offset,
                )
            if timestamp < last.timestamp:
                raise ValueError(f"time {timestamp} is before {last.timestamp} in {self.path}")
        if timestamp > last.timestamp:
            if self._count >= self._max_entries:
                raise self._full()
            self._relative(offset)

    def lookup(self, target_timestamp: int) -> TimestampOffset:
        """Return the last entry at or before the target, or (-1, base offset) if none."""
        with self._file_lock:
            self._opened()
            last = self._last
            if not self._count or target_timestamp >= last.timestamp:
                return last
            least = self._entry(0).timestamp
            return self._floor(*self._search(target_timestamp, _TIMESTAMP, least, last.timestamp))

    def floor_by_offset(self, offset: int) -> TimestampOffset:
        """Return the last entry at or before an offset, or (-1, base offset) if none."""
        with self._file_lock:
            return self._floor(*self._search_offset(offset))

    def entries(self) -> Iterator[TimestampOffset]:
        """Yield a snapshot of all entries as stored; only `entry` validates."""
        for timestamp, relative in ENTRY.iter_unpack(self._raw_entries()):
            yield TimestampOffset(timestamp, self.base_offset + relative)

    def content_below(self, offset: int) -> bytes:
        """Return a copy of the entries below an offset: a valid index of its own."""
        with self._file_lock:
            count = self._count_below(offset)
            return self._load(0, count)

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, or (-1, base offset) of an empty index."""
        return self._last

    def sanity_check(self) -> None:
        """Raise CorruptIndex if the file cannot be a time index of this segment."""
        self._ensure_whole_entries()
        if self._count == 0:
            return
        with self._file_lock:
            first_timestamp, _ = ENTRY.unpack(self._load(0, 1))
        if first_timestamp < 0:
            raise self._corrupt(f"its first entry is for time {first_timestamp}")
        if self._last.timestamp < first_timestamp:
            raise self._corrupt(f"time went back from {first_timestamp} to {self._last.timestamp}")
        if self._last.offset < self.base_offset:
            raise self._corrupt(
                f"its last offset {self._last.offset} lies before base offset {self.base_offset}"
            )

    def _made(self, first: int, second: int) -> TimestampOffset:
        return TimestampOffset(first, self.base_offset + second)

    def _before_first(self) -> TimestampOffset:
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def _full(self) -> IndexFull:
        return IndexFull(f"{self.path} is full", file=str(self.path), entries=self._count)
