"""Verifies index entries that were found on disk: each must point at an intact batch.

An index has no checksum. Entries that this process wrote or rebuilt are trusted. An entry found on
disk is only used if an intact batch begins at its position; otherwise the index or that batch is
damaged, and `engine.segment.index_checks` finds out which.
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
"""How many verified positions a segment remembers: at most some 400 KB."""

REMEMBERED_MARKERS: Final = 1024
"""For how many producers a segment remembers the last marker."""

NO_MARKERS: Final[Mapping[int, int]] = MappingProxyType({})


class IndexProofs:
    """The verified batch boundaries in one `.log` file. Thread-safe.

    The state is published as one value. `proving` is held while the transaction index is verified,
    by one reader at a time; the others wait for its result.
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
        """The end of what an earlier process wrote; entries that point below it must be
        verified."""
        self.unproven_aborts_bytes = self.found_bytes
        """The same for the transaction index; 0 once it is verified."""
        self.log_start_offset = 0
        """The log start when the log was loaded: a transaction that began below it may have been
        unknown when its marker was appended."""
        self._proven: set[int] = set()
        self.proving = threading.Lock()
        self._cuts = 0
        self._markers: tuple[int, Mapping[int, int]] = (0, NO_MARKERS)

    @property
    def cuts(self) -> int:
        """How often the file was cut; a verification reads it first."""
        return self._cuts

    @property
    def last_markers(self) -> Mapping[int, int]:
        """The offset of each producer's last marker, if the transaction index is verified.

        Otherwise empty, as after a cut, or if there are more producers than are remembered.
        """
        cuts, markers = self._markers
        return markers if cuts == self._cuts else NO_MARKERS

    def trust_aborts(self, cuts: int, last_markers: Mapping[int, int]) -> None:
        """Record that the transaction index agrees with the markers.

        If the file was cut meanwhile, the index is still correct, because this process wrote the
        later entries.
        """
        if len(last_markers) <= REMEMBERED_MARKERS:
            self._markers = cuts, MappingProxyType(dict(last_markers))
        self.unproven_aborts_bytes = 0

    def was_found(self, position: int) -> bool:
        """Whether an earlier process wrote this position; entries for it must be verified."""
        return position < self.found_bytes

    @property
    def is_index_trusted(self) -> bool:
        """Whether all entries of the sparse indexes are trusted."""
        return self.found_bytes == 0

    def ensure_batch_at(
        self, position: int, index: OffsetIndex, *, cached_only: bool = False
    ) -> None:
        """Raise CorruptIndex unless an intact batch begins at the position that `index` gives.

        The first byte of the file is always trusted. Raises StoredDataCorrupt if the batch's offset
        is below the end of the previous batch, NotCached if `cached_only` and the disk is needed.
        """
        if position >= self.found_bytes or position == 0 or position in self._proven:
            return
        records, end = self._records, self._records.size_bytes
        try:
            _, batch = next(records.batches(position, end, cached_only=cached_only))
        except StoredDataCorrupt as error:
            raise self.disproved(index.path, f"points at damage: {error}") from error
        offset = batch.header.base_offset
        if offset < self._base_offset:
            what = f"points at offset {offset}, which is not in this segment"
            raise self.disproved(index.path, what)
        before = index.floor_by_position(position - 1).position
        previous_end = records.next_offset_at(position, before, cached_only=cached_only)
        if previous_end is not None and offset < previous_end:
            raise records.damaged(
                f"offset {offset} instead of at least {previous_end}", position, offset
            )
        if len(self._proven) >= REMEMBERED_PLACES:
            self._proven.clear()
        self._proven.add(position)

    def trust_index(self) -> None:
        """Record that the sparse indexes were rebuilt from the log file."""
        self.found_bytes = 0

    def forget_from(self, position: int) -> None:
        """Record that the file was cut at `position`: this process writes what follows."""
        self._cuts += 1
        self.found_bytes = min(self.found_bytes, position)
        self.unproven_aborts_bytes = min(self.unproven_aborts_bytes, position)

    def disproved(self, index: Path, what: str) -> CorruptIndex:
        """Return the error for an index that contradicts the log file."""
        return CorruptIndex(f"{index} {what}", file=str(index), base_offset=self._base_offset)
