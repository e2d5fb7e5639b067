"""Rebuilds the sparse indexes of a segment that stays in use, from its log file.

The long scan of the existing batches needs no lock. The short scan of later appends, and the
replacement of the entries, need the log lock. Only the framing and the order of offsets are
checked: a batch with a wrong checksum is indexed too, and reads of it fail.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import CorruptIndex
from engine.fs import names
from engine.segment.segment import NO_MAXIMUM, Segment
from engine.types import OffsetPosition, TimestampOffset


class Reindexing:
    """The new index entries of one segment, as far as it was scanned."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._walked_bytes = 0
        self._indexed_position = 0
        self._next_offset = segment.base_offset
        self._maximum = NO_MAXIMUM
        self._entries: list[tuple[OffsetPosition, TimestampOffset]] = []

    def walk(self) -> None:
        """Continue the scan to the present end of the segment.

        Raises StoredDataCorrupt at the first impossible frame or descending offset.
        """
        segment = self._segment
        for at, header in segment.records.ascending_headers(
            self._walked_bytes, segment.size_bytes, next_offset=self._next_offset
        ):
            if header.max_timestamp > self._maximum.timestamp:
                self._maximum = TimestampOffset(header.max_timestamp, header.last_offset)
            if at - self._indexed_position > segment.index_interval_bytes:
                self._entries.append((OffsetPosition(header.last_offset, at), self._maximum))
                self._indexed_position = at
            self._walked_bytes = at + header.size_bytes
            self._next_offset = header.next_offset

    def install(self, *, is_active: bool) -> None:
        """Replace the entries; look-ups meanwhile are correct but slower.

        The segment must be scanned to its end, and the log lock held.
        """
        assert self._walked_bytes == self._segment.size_bytes, "the log lock is held"
        self._segment.replace_entries(self._entries, self._maximum)
        if not is_active:
            self._segment.seal()


def base_offset_of_index(error: CorruptIndex) -> int:
    """Return the base offset of the segment whose sparse index failed; raise `error` otherwise."""
    name = Path(str(error.facts()["file"])).name
    base_offset = names.base_offset_of(name)
    if base_offset is None or name == names.txn_index_name(base_offset):
        raise error
    return base_offset
