"""The base of offset and time index: fixed-size entries in a preallocated file.

Kafka's `AbstractIndex`. While a segment is active, its index files have their full size and are
mostly zeros; a roll or a clean close trims them to their entries. After a crash the length of a
file does not tell the number of entries: this module counts every whole entry of an existing file,
and recovery resets the indexes of segments that were not flushed.

An unused index may rest: it keeps its count and last entry in memory, and closes its file until the
next look-up or append.

Threads: one writer at a time (the log's lock), any number of readers. A reader holds the index's
own lock while it searches, because the file must not be cut or closed meanwhile. An append does not
take that lock, because readers see an entry only after the count has been raised.

A part of the file that cannot be read is damage like any other (CorruptIndex): it is rebuilt from
the log. Kafka maps its indexes into memory; then such a page, or a full disk below a file system
that writes each change to a new place, kills the process (SIGBUS).
"""

from __future__ import annotations

import errno
import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from struct import Struct
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

from engine.errors import CorruptIndex, SegmentOverflow
from engine.fs.port import FileSystem, IndexFile
from engine.types import INT32_MAX, OffsetPosition, TimestampOffset

BLOCK_BYTES: Final = 4_080
"""How much a look-up loads at once, in whole entries of either index.

It begins where the target would be if the keys ascended evenly: at the last block for a reader near
the log end. Plain bisection would touch other pages each time the index grows, and wait for the
disk.
"""


class Keys(NamedTuple):
    """The field of an entry that a look-up searches."""

    field: Struct
    position: int


Last = TypeVar("Last", bound=OffsetPosition | TimestampOffset)


class Kept(NamedTuple, Generic[Last]):
    """What stays of an index that is truncated."""

    entries_count: int
    last: Last
    """The value of its last entry, or of an empty index."""


class SparseIndex(ABC, Generic[Last]):
    """An array of ascending entries of one size in a file; grows at its end.

    `max_size_bytes` is the size of a new file, rounded down to whole entries. An existing file
    keeps its length; if it was trimmed, it is full.
    """

    _last: Last
    """The last entry; replaced under the log lock."""

    ENTRY: ClassVar[Struct]
    OFFSETS: ClassVar[Keys]
    """The field with the offset, relative to the base offset."""
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
        self.is_unreadable = False
        """Whether the disk could not read a part of the file; set under the file lock."""
        self._file_lock = threading.Lock()
        self._is_closed = self._is_wanted = False
        self._changes = self._synced_changes = 0
        self._syncs = 0  # syncs that are running
        self._path = path
        self._file: IndexFile | None
        self._count: int
        self._begin_with(fs.open_index(path, self._max_size_bytes, read_only=read_only))
        self._last = self._last_of(self._count)

    # ------------------------------------------------------------------------ open and close

    def open_to_sync(self) -> None:
        """Open the file if `sync` will need it, so that `sync` itself opens nothing."""
        with self._file_lock:
            if self._changes != self._synced_changes:
                self._opened()

    def sync(self) -> None:
        """Return once every entry would survive a power cut. Needs no lock."""
        with self._file_lock:
            changes = self._changes
            if self._file is None and changes == self._synced_changes:
                self._ensure_open()
                return  # it rests: nothing has changed since the last sync
            file = self._opened()
            self._syncs += 1
        try:
            file.sync()
            self._synced_changes = max(self._synced_changes, changes)
        finally:
            with self._file_lock:
                self._syncs -= 1

    def resize(self, size_bytes: int) -> bool:
        """Resize the file to the whole entries within `size_bytes`; return whether it changed.

        The file of a resting index is resized when it is opened again.
        """
        size_bytes = self._round_down(size_bytes)
        if size_bytes < self.size_bytes:
            raise ValueError(f"{self._count} entries of {self.path} do not fit in {size_bytes}")
        with self._file_lock:
            grows_later = self._file is None and not self._is_closed
            if size_bytes == self._length_bytes or (
                grows_later and size_bytes > self._length_bytes
            ):
                self._max_entries = size_bytes // self._entry_bytes
                return False
            self._use(self._opened(), size_bytes)
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
        """Drop all entries and make room for new ones; a file that cannot be read is replaced."""
        if self.is_unreadable:
            self._replace_file()
        self.keep_first(0)
        self.restore_max_size()

    def _replace_file(self) -> None:
        """Put an empty file in the place of this one; until it is synced a start rebuilds both."""
        with self._file_lock:
            self._ensure_open()
            self._let_go()
            self._fs.remove(self._path, missing_ok=True)
            self._begin_with(self._fs.open_index(self._path, self._max_size_bytes))
            self.is_unreadable = False

    def rest(self) -> None:
        """Close the file until it is used again, if all changes are on disk.

        Does nothing if there are unsynced changes, during a sync, after `close`, the first time
        after `stays_open` returned True, or while another thread uses the file, which may wait for
        the disk. The caller prevents appends meanwhile.
        """
        if not self._file_lock.acquire(blocking=False):
            return
        try:
            is_wanted, self._is_wanted = self._is_wanted, False
            if not is_wanted and not self._syncs and self._changes == self._synced_changes:
                self._let_go()
        finally:
            self._file_lock.release()

    def stays_open(self) -> bool:
        """Whether the following look-ups open no file, even if `rest` is called meanwhile."""
        with self._file_lock:
            self._is_wanted = self._file is not None
            return self._is_wanted

    def wake(self) -> IndexFile:
        """Open the file if it rests. The log lock is held. OSError, CorruptIndex, ValueError."""
        file = self._file
        if file is None:
            with self._file_lock:
                file = self._opened()
        return file

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
        with self._file_lock:
            self._is_closed = True
            self._let_go()

    def close_if_resting(self) -> None:
        """Never open the file again: it is about to be removed. An open file stays readable."""
        with self._file_lock:
            self._is_closed = self._is_closed or self._file is None

    def rename(self, target: Path) -> None:
        """Rename the file. `path` changes even if this raises, as in Kafka."""
        with self.renaming():
            source = self.path
            self.path = target
            self._fs.rename(source, target)

    def renaming(self) -> AbstractContextManager[bool]:
        """Guard a block that renames the file and sets `path`: no thread opens it meanwhile."""
        return self._file_lock

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
        if self._file is not None:
            self._file.path = path

    @property
    def is_resting(self) -> bool:
        """Whether the next look-up or append has to open the file."""
        return self._file is None

    @property
    def count(self) -> int:
        """The number of entries."""
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether only the reserved slots are left."""
        return self._count >= self._max_entries - self.KEPT_FREE

    @property
    def free_entries(self) -> int:
        """The number of entries until `is_full`."""
        return self._max_entries - self.KEPT_FREE - self._count

    @property
    def size_bytes(self) -> int:
        """The bytes of the entries."""
        return self._count * self._entry_bytes

    # ---------------------------------------------------------------- for the two children

    @abstractmethod
    def _made(self, first: int, second: int) -> Last:
        """Return the entry with these fields."""

    @abstractmethod
    def _before_first(self) -> Last:
        """Return what stands for an entry where there is none."""

    def entry(self, slot: int) -> Last:
        """Return the entry in a slot; IndexError if the slot is empty."""
        with self._file_lock:
            self._opened()
            self._ensure_slot(slot)
            return self._entry(slot)

    def _entry(self, slot: int) -> Last:
        """Return the entry in a slot. The file lock is held."""
        return self._valid(slot, *self.ENTRY.unpack(self._load(slot, slot + 1)))

    def _valid(self, slot: int, first: int, second: int) -> Last:
        if first < 0 or second < 0:  # records without a time are not indexed
            raise self._corrupt(f"slot {slot} holds ({first}, {second})")
        return self._made(first, second)

    def _last_of(self, count: int) -> Last:
        """Load the last of the first `count` entries. The file lock is held."""
        if count == 0:
            return self._before_first()
        return self._made(*self.ENTRY.unpack(self._load(count - 1, count)))

    def _count_below(self, offset: int) -> int:
        """Return how many entries are below an offset. The file lock is held."""
        first, _, count = self._search_offset(offset - 1)
        return first + count

    def _search_offset(self, offset: int) -> tuple[int, bytes, int]:
        relative, most = offset - self.base_offset, self._last.offset - self.base_offset
        return self._search(relative, self.OFFSETS, 0, most)

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
        file = self.wake()
        end = (self._count + 1) * self._entry_bytes
        if file.reserved_bytes < end <= file.size_bytes:
            file.reserve(end)

    def _store(self, first: int, second: int) -> None:
        """Add one entry after the last; there must be room."""
        file = self.wake()
        position = self._count * self._entry_bytes
        end = position + self._entry_bytes
        if end > file.reserved_bytes:
            file.reserve(end)
        file.store(position, self.ENTRY.pack(first, second))
        self._changes += 1  # after the entry, or a sync that ran just before would count for it
        self._count += 1  # last, because from here on readers see the entry

    def _floor(self, first: int, block: bytes, count: int) -> Last:
        """Return the entry that `_search` found, or `_before_first` if there is none."""
        if count == 0:
            return self._entry(first - 1) if first else self._before_first()
        raw = self.ENTRY.unpack_from(block, (count - 1) * self._entry_bytes)
        return self._valid(first + count - 1, *raw)

    def _search(self, target: int, keys: Keys, least: int, most: int) -> tuple[int, bytes, int]:
        """Find the last entry whose key is at most `target`. The file lock is held.

        Returns the first slot of a block, the block, and how many of its entries are at most
        `target`; all before it are. `least` is at most the first key, and `most` the last one.
        Where the keys ascend evenly, the first block that is loaded has the answer. Kafka's
        `AbstractIndex.indexSlotRangeFor`.
        """
        entry_bytes, in_block = self._entry_bytes, BLOCK_BYTES // self._entry_bytes
        key_at, field_position = keys.field.unpack_from, keys.position
        low, high = 0, max(0, self._count - 1) // in_block
        guess = max(0, min(high, (target - least) * high // max(1, most - least)))
        step = 1
        while True:
            first = guess * in_block
            end = min(first + in_block, self._count)
            block = self._load(first, end)
            if guess > low and key_at(block, field_position)[0] > target:
                high = guess - 1
                guess = max((low + high) // 2, high - step + 1)
            elif (
                guess < high
                and key_at(block, len(block) - entry_bytes + field_position)[0] <= target
            ):
                low = guess + 1
                guess = min((low + high) // 2, low + step - 1)
            else:
                break
            step *= 4
        low, high = 0, end - first
        while low < high:
            middle = (low + high) // 2
            if key_at(block, middle * entry_bytes + field_position)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return first, block, low

    def kept_below(self, offset: int) -> Kept[Last]:
        """Return what `truncate` to `offset` keeps. Raises CorruptIndex; needs no lock."""
        with self._file_lock:
            count = self._count_below(offset)
            return Kept(count, self._last_of(count))

    def truncate(self, kept: Kept[Last]) -> None:
        """Drop and erase the entries that `kept_below` has left out; the file keeps its length.

        They are overwritten with zeros, so that a crash cannot bring them back. Reads nothing, so
        that a page that cannot be read does not stop a truncation half-way. The log lock is held.
        """
        with self._file_lock:
            file = self._opened()
            if kept.entries_count < self._count:
                start, end = kept.entries_count * self._entry_bytes, self.size_bytes
                file.store(start, bytes(end - start))
            self._keep(kept)

    def _raw_entries(self) -> bytes:
        """Return a copy of all entries."""
        with self._file_lock:
            return self._load(0, self._count)

    def _load(self, first: int, end: int) -> bytes:
        """Return the entries from slot `first` to `end`, exclusive. The file lock is held."""
        position, length = first * self._entry_bytes, (end - first) * self._entry_bytes
        file = self._opened()
        try:
            data = file.load(position, length)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.is_unreadable = True
            raise self._corrupt(f"byte {position} cannot be read") from error
        if len(data) != length:
            raise self._corrupt(f"it ends before byte {position + length}")
        return data

    def keep_first(self, count: int) -> None:
        """Drop all entries but the first `count`. The log lock is held."""
        with self._file_lock:
            self._opened()
            self._keep(Kept(count, self._last_of(count)))

    def _keep(self, kept: Kept[Last]) -> None:
        self._changes += 1
        self._count, self._last = kept

    def _ensure_slot(self, slot: int) -> None:
        if not 0 <= slot < self._count:
            raise IndexError(f"{self.path} has {self._count} entries, no slot {slot}")

    def _opened(self) -> IndexFile:
        """Return the file, opened again if it rested. The file lock is held."""
        file = self._file
        if file is None:
            file = self._open_again()
        return file

    def _open_again(self) -> IndexFile:
        self._ensure_open()
        file = self._fs.open_index(self._path, read_only=self._read_only)
        if file.size_bytes != self._length_bytes:
            file.close()
            raise self._corrupt(f"its length is {file.size_bytes}; it was {self._length_bytes}")
        try:
            self._use(file, max(self._length_bytes, self._max_entries * self._entry_bytes))
        except OSError:
            file.close()
            raise
        return file

    def _begin_with(self, file: IndexFile) -> None:
        """Use a file that was just opened or made: every whole entry counts, in a new one none."""
        self._file = file
        self._length_bytes = file.size_bytes
        self._max_entries = file.size_bytes // self._entry_bytes
        self._count = 0 if file.is_new else self._max_entries

    def _let_go(self) -> None:
        """Close the file, if it is open. The file lock is held."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _use(self, file: IndexFile, size_bytes: int) -> None:
        """Use this file with this length; after an OSError it is as it was."""
        if size_bytes != file.size_bytes:
            file.resize(size_bytes)
            self._changes += 1
        self._file = file
        self._length_bytes = size_bytes

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
