"""Why an index that was found on disk may be believed: it leads to a batch, and that is seen to.

An index carries no checksum. What this process wrote or rebuilt needs no proof. An entry found on
disk is followed only to an intact batch at its place; otherwise the index, or that batch, is
damaged, and `engine.segment.reindexing` finds out which.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from engine.errors import CorruptIndex, StoredDataCorrupt
from engine.index.offset import OffsetIndex
from engine.segment.file_records import FileRecords

REMEMBERED_PLACES: Final = 4096
"""How many proven places a segment remembers: some 400 KB at the most."""

REMEMBERED_MARKERS: Final = 1024
"""Of how many producers a segment remembers the last marker."""

NO_MARKERS: Final[Mapping[int, int]] = MappingProxyType({})


class IndexProofs:
    """Which places in one `.log` file are surely batch boundaries. Thread-safe.

    Sets only grow, and what is proven is published as one value. `proving` is held while the index
    of aborted transactions is proven, by one reader at a time: the others wait for its result.
    """

    __slots__ = (
        "_base_offset",
        "_cuts",
        "_markers",
        "_proven",
        "_records",
        "found_bytes",
        "log_start_offset",
        "proving",
        "unproven_aborts_bytes",
    )

    def __init__(self, records: FileRecords, base_offset: int) -> None:
        self._records = records
        self._base_offset = base_offset
        self.found_bytes = records.size_bytes
        """Up to here the file is another process's, and what leads there needs a proof."""
        self.unproven_aborts_bytes = self.found_bytes
        """The same for the index of aborted transactions; 0 once that is proven."""
        self.log_start_offset = 0
        """Where the log began when it was loaded: what lies below may have begun a transaction that
        nobody remembered when its marker came."""
        self._proven: set[int] = set()
        self.proving = threading.Lock()
        self._cuts = 0
        self._markers: tuple[int, Mapping[int, int]] = (0, NO_MARKERS)

    @property
    def cuts(self) -> int:
        """How often the file was cut; a proof begins by taking it."""
        return self._cuts

    @property
    def last_markers(self) -> Mapping[int, int]:
        """The offset of each producer's last marker here, if the index of aborts was proven.

        Otherwise nothing, as after a cut, and for more producers than are remembered.
        """
        cuts, markers = self._markers
        return markers if cuts == self._cuts else NO_MARKERS

    def trust_aborts(self, cuts: int, last_markers: Mapping[int, int]) -> None:
        """Note that the index of aborted transactions agrees with the markers.

        If the file was cut meanwhile the index is still true: what came instead is our own.
        """
        if len(last_markers) <= REMEMBERED_MARKERS:
            self._markers = cuts, MappingProxyType(dict(last_markers))
        self.unproven_aborts_bytes = 0

    def was_found(self, position: int) -> bool:
        """Whether a place was in the file before this process: what leads there needs a proof."""
        return position < self.found_bytes

    @property
    def is_index_trusted(self) -> bool:
        """Whether nothing in the indexes needs a proof any more."""
        return self.found_bytes == 0

    def ensure_batch_at(
        self, position: int, index: OffsetIndex, *, cached_only: bool = False
    ) -> None:
        """Raise CorruptIndex unless an intact batch begins where `index` says that one does.

        The first byte of the file needs no proof. StoredDataCorrupt if the batch begins below the
        one before it; NotCached if `cached_only` and the disk would be needed.
        """
        if position >= self.found_bytes or position == 0 or position in self._proven:
            return
        records, end = self._records, self._records.size_bytes
        try:
            _, batch = next(records.batches(position, end, cached_only=cached_only))
        except StoredDataCorrupt as error:
            raise self.disproved(index.path, f"leads to damage: {error}") from error
        offset = batch.header.base_offset
        if offset < self._base_offset:
            what = f"leads to offset {offset}, which is not of this segment"
            raise self.disproved(index.path, what)
        before = index.floor_by_position(position - 1).position
        behind = records.next_offset_at(position, before, cached_only=cached_only)
        if behind is not None and offset < behind:
            raise records.damaged(f"offset {offset} where {behind} is next", position, offset)
        if len(self._proven) >= REMEMBERED_PLACES:
            self._proven.clear()
        self._proven.add(position)

    def trust_index(self) -> None:
        """Note that the sparse indexes have been rebuilt from the log file."""
        self.found_bytes = 0

    def forget_from(self, position: int) -> None:
        """Note that what lay at `position` and behind it is cut: what follows is our own."""
        self._cuts += 1
        self.found_bytes = min(self.found_bytes, position)
        self.unproven_aborts_bytes = min(self.unproven_aborts_bytes, position)

    def disproved(self, index: Path, what: str) -> CorruptIndex:
        """Return the error for an index that says something untrue."""
        return CorruptIndex(f"{index} {what}", file=str(index), base_offset=self._base_offset)
