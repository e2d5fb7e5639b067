"""The sparse indexes of a segment made anew from its log file, while everybody goes on using it.

The long walk over what is there needs no lock; the short one over what was appended meanwhile, and
putting the entries in place, need the log lock. Only the framing is believed, and that offsets
ascend: a batch whose checksum is wrong keeps its place, and whoever reads it learns of the damage.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import CorruptIndex
from engine.fs import names
from engine.segment.segment import NO_MAXIMUM, Segment
from engine.types import OffsetPosition, TimestampOffset


class Reindexing:
    """The entries of one segment as far as it was walked."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._walked_bytes = 0
        self._indexed_position = 0
        self._next_offset = segment.base_offset
        self._maximum = NO_MAXIMUM
        self._entries: list[tuple[OffsetPosition, TimestampOffset]] = []

    def walk(self) -> None:
        """Go on to the present end of the segment.

        Raises StoredDataCorrupt at the first frame that cannot be, or whose offsets go back.
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
        """Replace the entries; readers meanwhile find what they seek, more slowly.

        The segment must be walked to its end and the log lock held.
        """
        assert self._walked_bytes == self._segment.size_bytes, "the log lock keeps the end still"
        self._segment.replace_entries(self._entries, self._maximum)
        if not is_active:
            self._segment.seal()


def base_offset_of_index(error: CorruptIndex) -> int:
    """Return whose offset or time index that is; raises `error` for another file."""
    name = Path(str(error.facts()["file"])).name
    base_offset = names.base_offset_of(name)
    if base_offset is None or name == names.txn_index_name(base_offset):
        raise error
    return base_offset
