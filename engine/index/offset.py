"""The offset index: the position in the `.log` file at which to start looking for an offset.

An entry is the last offset of one append and the position where that append starts, 8 bytes; there
is one for every `index.interval.bytes`. Kafka's `OffsetIndex`; docs/formats/offset-index.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, Final

from engine.errors import IndexFull, OffsetsOutOfOrder
from engine.index.sparse import Keys, SparseIndex
from engine.types import OffsetPosition

ENTRY: Final = Struct(
    ">"
    "i"  # offset minus the segment's base offset
    "i"  # position in the .log file
)
_OFFSET: Final = Keys(Struct(">i"), 0)
_POSITION: Final = Keys(Struct(">i"), 4)

assert ENTRY.size == 8, "the entry is fixed by the file format"


class OffsetIndex(SparseIndex[OffsetPosition]):
    """Offsets and positions, both ascending; offsets strictly."""

    ENTRY: ClassVar[Struct] = ENTRY
    OFFSETS: ClassVar[Keys] = _OFFSET

    def append(self, offset: int, position: int) -> None:
        """Record that the append which ends with `offset` starts at `position`.

        IndexFull, OffsetsOutOfOrder or SegmentOverflow; then nothing has changed.
        """
        self._ensure_open()
        if self.is_full:
            raise IndexFull(f"{self.path} is full", file=str(self.path), entries=self._count)
        if self._count and offset <= self._last.offset:
            raise OffsetsOutOfOrder(
                f"offset {offset} does not follow {self._last.offset} in {self.path}",
                offset=offset,
                last_offset=self._last.offset,
            )
        self._store(self._relative(offset), position)
        self._last = OffsetPosition(offset, position)

    def lookup(self, target_offset: int) -> OffsetPosition:
        """Return the last entry at or before the target, or the segment's first byte if none."""
        with self._file_lock:
            self._opened()
            last = self._last
            if target_offset >= last.offset:
                return last
            return self._floor(*self._search_offset(target_offset))

    def floor_by_position(self, position: int) -> OffsetPosition:
        """Return the last entry at or before a position, or the segment's first byte if none."""
        with self._file_lock:
            return self._floor(*self._search(position, _POSITION, 0, self._last.position))

    def entries(self) -> Iterator[OffsetPosition]:
        """Yield a snapshot of all entries as stored; only `entry` validates."""
        for relative, position in ENTRY.iter_unpack(self._raw_entries()):
            yield OffsetPosition(self.base_offset + relative, position)

    def content_below(self, position: int) -> bytes:
        """Return a copy of the entries that point below a position: a valid index of its own."""
        with self._file_lock:
            first, _, count = self._search(position - 1, _POSITION, 0, self._last.position)
            return self._load(0, first + count)

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry, or the segment's first byte for an empty index."""
        return self._last

    def sanity_check(self) -> None:
        """Raise CorruptIndex if the file cannot be an index of this segment.

        It only detects a wrong length and an impossible last entry; recovery does not rely on it.
        """
        self._ensure_whole_entries()
        if self._last.offset < self.base_offset:
            raise self._corrupt(
                f"its last offset {self._last.offset} lies before base offset {self.base_offset}"
            )
        if self._last.position < 0:
            raise self._corrupt(f"its last entry points to byte {self._last.position}")

    def _made(self, first: int, second: int) -> OffsetPosition:
        return OffsetPosition(self.base_offset + first, second)

    def _before_first(self) -> OffsetPosition:
        return OffsetPosition(self.base_offset, 0)
