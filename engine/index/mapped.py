"""The base of offset and time index: fixed-size entries in a preallocated memory map.

Kafka's `AbstractIndex`. While a segment is active, its index files have their full size and are
mostly zeros; a roll or a clean close trims them to their entries. After a crash the length of a
file does not tell the number of entries: this module counts every whole entry of an existing file,
and recovery resets the indexes of segments that were not flushed.

An unused index may rest: it keeps its count and last entry in memory, and closes its file until the
next look-up or append.

Threads: one writer at a time (the log's lock), any number of readers. A reader holds the index's
own lock while it searches, because the memory must not be unmapped or cut meanwhile. An append does
not take that lock, because readers see an entry only after the count has been raised.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from struct import Struct
from typing import ClassVar, Final

from engine.errors import CorruptIndex, SegmentOverflow
from engine.fs.filesystem import FileSystem, MappedFile
from engine.types import INT32_MAX

WARM_BYTES: Final = 8192
"""The part at the end of an index that look-ups near the log end use, so that it stays cached.

Plain bisection would touch other pages each time the index grows, and wait for the disk.
"""


class MappedIndex(ABC):
    """An array of ascending entries of one size in a file; grows at its end.

    `max_size_bytes` is the size of a new file, rounded down to whole entries. An existing file
    keeps its length; if it was trimmed, it is full.
    """

    ENTRY: ClassVar[Struct]
    KEPT_FREE: ClassVar[int] = 0
    """The slots that are reserved for the entry that seals a segment."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        base_offset: int,
        max_size_bytes: int,
        *,
        read_only: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self._fs = fs
        self._entry_bytes = self.ENTRY.size
        self._max_size_bytes = self._round_down(max_size_bytes)
        if self._max_size_bytes == 0 and not read_only:
            raise ValueError(f"an index of {max_size_bytes} bytes cannot hold an entry")
        self._read_only = read_only
        self._remap_lock = threading.Lock()
        self._is_closed = self._is_wanted = False
        self._changes = self._synced_changes = 0
        self._syncs = 0  # syncs that are running
        self._path = path
        self._length_bytes = 0
        self._map: MappedFile | None = None
        mapped = fs.open_map(path, self._max_size_bytes, read_only=read_only)
        self._take(mapped)
        self._max_entries = mapped.size_bytes // self._entry_bytes
        self._count = 0 if mapped.is_new else self._max_entries
        self._refresh_last()

    # ------------------------------------------------------------------------ open and close

    def open_to_sync(self) -> None:
        """Open the file if `sync` will need it, so that `sync` itself opens nothing."""
        with self._remap_lock:
            if self._changes != self._synced_changes:
                self._mapped()

    def sync(self) -> None:
        """Return once every entry would survive a power cut. Needs no lock."""
        with self._remap_lock:
            changes = self._changes
            if self._map is None and changes == self._synced_changes:
                self._ensure_open()
                return  # it rests: nothing has changed since the last sync
            mapped = self._mapped()
            self._syncs += 1
        try:
            mapped.sync()
            self._synced_changes = max(self._synced_changes, changes)
        finally:
            with self._remap_lock:
                self._syncs -= 1

    def resize(self, size_bytes: int) -> bool:
        """Resize the file to the whole entries within `size_bytes`; return whether it changed.

        The file of a resting index is resized when it is opened again.
        """
        size_bytes = self._round_down(size_bytes)
        if size_bytes < self.size_bytes:
            raise ValueError(f"{self._count} entries of {self.path} do not fit in {size_bytes}")
        with self._remap_lock:
            grows_later = self._map is None and not self._is_closed
            if size_bytes == self._length_bytes or (
                grows_later and size_bytes > self._length_bytes
            ):
                self._max_entries = size_bytes // self._entry_bytes
                return False
            self._map_with_length(self._mapped(), size_bytes)
            self._max_entries = size_bytes // self._entry_bytes
        return True

    def trim(self) -> None:
        """Cut the file to its entries; the index is then full."""
        self.resize(self.size_bytes)

    def restore_max_size(self) -> None:
        """Make room for entries again, as an active segment needs it.

        If there are more entries than the maximum size allows, the reserved slots are added: the
        index may have been made with a larger maximum.
        """
        sealed_bytes = self.size_bytes + self.KEPT_FREE * self._entry_bytes
        self.resize(max(self._max_size_bytes, sealed_bytes))

    def reset(self) -> None:
        """Drop all entries and make room for new ones."""
        self._keep(0)
        self.restore_max_size()

    def rest(self) -> None:
        """Close the file until it is used again, if all changes are on disk.

        Does nothing if there are unsynced changes, during a sync, after `close`, the first time
        after `stays_open` returned True, or while another thread uses the map, which may wait for
        the disk. The caller prevents appends meanwhile.
        """
        if not self._remap_lock.acquire(blocking=False):
            return
        try:
            mapped, is_wanted = self._map, self._is_wanted
            self._is_wanted = False
            if mapped is None or is_wanted or self._syncs:
                return
            if self._changes == self._synced_changes:
                self._map = None
                mapped.close()
        finally:
            self._remap_lock.release()

    def stays_open(self) -> bool:
        """Whether the following look-ups open no file, even if `rest` is called meanwhile."""
        with self._remap_lock:
            self._is_wanted = self._map is not None
            return self._is_wanted

    def wake(self) -> MappedFile:
        """Open the file if it rests. The log lock is held. OSError, CorruptIndex, ValueError."""
        mapped = self._map
        if mapped is None:
            with self._remap_lock:
                mapped = self._mapped()
        return mapped

    def close(self) -> None:
        """Trim the file, sync it and close it. May be called again.

        It is synced because a clean-shutdown marker makes the next start trust it.
        """
        if not self._is_closed and not self._read_only:
            self.trim()
            self.sync()
        self.close_handles()

    def close_handles(self) -> None:
        """Close the file as it is. May be called again; other uses afterwards are a ValueError."""
        with self._remap_lock:
            self._is_closed = True
            mapped, self._map = self._map, None
            if mapped is not None:
                mapped.close()

    def close_if_resting(self) -> None:
        """Never open the file again: it is about to be removed. An open file stays readable."""
        with self._remap_lock:
            self._is_closed = self._is_closed or self._map is None

    def rename(self, target: Path) -> None:
        """Rename the file. `path` changes even if this raises, as in Kafka."""
        with self.renaming():
            source = self.path
            self.path = target
            self._fs.rename(source, target)

    def renaming(self) -> AbstractContextManager[bool]:
        """Guard a block that renames the file and sets `path`: no thread opens it meanwhile."""
        return self._remap_lock

    def delete(self) -> None:
        """Close the file and remove it, if it exists."""
        self.close_handles()
        self._fs.remove(self.path, missing_ok=True)

    # ---------------------------------------------------------------------------- queries

    @property
    def path(self) -> Path:
        """The file's path; set it inside `renaming` when a parent directory was renamed."""
        return self._path

    @path.setter
    def path(self, path: Path) -> None:
        self._path = path
        if self._map is not None:
            self._map.path = path

    @property
    def is_resting(self) -> bool:
        """Whether the next look-up or append has to open the file."""
        return self._map is None

    @property
    def count(self) -> int:
        """The number of entries."""
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether only the reserved slots are left."""
        return self._count >= self._max_entries - self.KEPT_FREE

    @property
    def size_bytes(self) -> int:
        """The bytes of the entries."""
        return self._count * self._entry_bytes

    # ---------------------------------------------------------------- for the two children

    @abstractmethod
    def _refresh_last(self) -> None:
        """Load the last entry into memory. Called whenever entries were dropped."""

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if 0 <= relative <= INT32_MAX:
            return relative
        raise SegmentOverflow(
            f"offset {offset} is out of reach of base offset {self.base_offset}",
            offset=offset,
            base_offset=self.base_offset,
        )

    def reserve_next(self) -> None:
        """Allocate disk space for the next entry, so that storing it cannot fail."""
        mapped = self.wake()
        end = (self._count + 1) * self._entry_bytes
        if mapped.reserved_bytes < end <= mapped.size_bytes:
            mapped.reserve(end)

    def _store(self, first: int, second: int) -> None:
        """Add one entry after the last; there must be room."""
        mapped = self.wake()
        position = self._count * self._entry_bytes
        end = position + self._entry_bytes
        if end > mapped.reserved_bytes:
            mapped.reserve(end)
        self.ENTRY.pack_into(mapped.buffer, position, first, second)
        self._changes += 1  # after the entry, or a sync that ran just before would count for it
        self._count += 1  # last, because from here on readers see the entry

    def _count_at_or_below(self, target: int, field: Struct, field_position: int) -> int:
        """Count the entries that have at most `target` in one field. The remap lock is held.

        The result is that of a plain bisection; the warm tail is tried first. Kafka's
        `AbstractIndex.indexSlotRangeFor`.
        """
        buffer = self._mapped().buffer
        entry_bytes = self._entry_bytes
        key_at = field.unpack_from
        high = self._count
        low = max(0, high - 1 - WARM_BYTES // entry_bytes)
        if low and key_at(buffer, low * entry_bytes + field_position)[0] > target:
            low, high = 0, low
        while low < high:
            middle = (low + high) // 2
            if key_at(buffer, middle * entry_bytes + field_position)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low

    def _keep(self, count: int, *, erase: bool = False) -> None:
        """Drop all but the first `count` entries; the file keeps its length.

        `erase` overwrites the others with zeros, so that a crash cannot bring them back.
        """
        with self._remap_lock:
            mapped = self._mapped()
            if erase and count < self._count:
                start, end = count * self._entry_bytes, self.size_bytes
                mapped.buffer[start:end] = bytes(end - start)
            self._changes += 1
            self._count = count
            self._refresh_last()

    def _raw_entries(self) -> bytes:
        """Return a copy of all entries."""
        with self._remap_lock:
            return self._first_entries(self._count)

    def _first_entries(self, count: int) -> bytes:
        """Return a copy of the first `count` entries. The remap lock is held."""
        return bytes(self._mapped().buffer[: count * self._entry_bytes])

    def _ensure_slot(self, slot: int) -> None:
        if not 0 <= slot < self._count:
            raise IndexError(f"{self.path} has {self._count} entries, no slot {slot}")

    def _mapped(self) -> MappedFile:
        """Return the file, opened again if it rested. The remap lock is held."""
        mapped = self._map
        if mapped is None:
            mapped = self._open_again()
        return mapped

    def _open_again(self) -> MappedFile:
        self._ensure_open()
        mapped = self._fs.open_map(self._path, read_only=self._read_only)
        if mapped.size_bytes != self._length_bytes:
            mapped.close()
            raise self._corrupt(f"its length is {mapped.size_bytes}; it was {self._length_bytes}")
        self._map_with_length(
            mapped, max(self._length_bytes, self._max_entries * self._entry_bytes)
        )
        return mapped

    def _map_with_length(self, mapped: MappedFile, size_bytes: int) -> None:
        """Use this map with its file resized. After an OSError the index has no map."""
        if size_bytes != mapped.size_bytes:
            self._changes += 1
            try:
                mapped.resize(size_bytes)
            except OSError:
                # The file may have its new length although memory or descriptors lack to map it.
                self._map = None
                mapped.close()
                self._length_bytes = self._fs.size_bytes(self._path)
                raise
        self._take(mapped)

    def _take(self, mapped: MappedFile) -> None:
        self._map = mapped
        self._length_bytes = mapped.size_bytes

    def _ensure_whole_entries(self) -> None:
        if self._length_bytes % self._entry_bytes:
            raise self._corrupt(f"its length {self._length_bytes} is not a multiple of an entry")

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"{self.path} is closed")

    def _corrupt(self, what: str) -> CorruptIndex:
        return CorruptIndex(f"{self.path} is corrupt: {what}", file=str(self.path))

    def _round_down(self, size_bytes: int) -> int:
        return size_bytes // self._entry_bytes * self._entry_bytes
