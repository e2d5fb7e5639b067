"""The three indexes of one segment, each opened on first use, and how many may be open.

The transaction index is only created when the segment records an aborted transaction. Mirrors
Kafka's `LazyIndex`.

A sealed segment without readers needs no open files. It rests, with its files closed, from its
flush or the start until a reader uses it. When too many are open, the one that was opened first
rests again. The active segment never rests, because appends use its files under the log lock alone.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from engine.errors import CorruptIndex
from engine.fs import names
from engine.fs.port import FileSystem
from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.index.transaction import TransactionIndex
from engine.segment.file_records import FileRecords, do_nothing


class SealedFiles:
    """The sealed segments with open files. Thread-safe; no other lock is taken under its lock."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._lock = threading.Lock()
        self._opened: deque[weakref.ref[Resting]] = deque()

    def opened(self, segment: Resting) -> None:
        """Add an open segment; close the oldest ones beyond the limit."""
        with self._lock:
            self._opened.append(weakref.ref(segment))
            excess = len(self._opened) - self.limit
            oldest = [self._opened.popleft() for _ in range(excess)]
        for reference in oldest:
            opened = reference()
            if opened is not None:
                opened.rest()


class Resting:
    """Whether the files of one segment may rest. Thread-safe."""

    __slots__ = ("__weakref__", "_files", "_indexes", "_lock", "_records")

    def __init__(self, records: FileRecords, indexes: SegmentIndexes) -> None:
        self._records = records
        self._indexes = indexes
        self._files: SealedFiles | None = None
        self._lock = threading.Lock()
        reference = weakref.ref(self)  # weak, so that a deleted log's files are closed at once

        def on_wake() -> None:
            resting = reference()
            if resting is not None:
                resting.woken()

        records.on_wake = indexes.on_wake = on_wake

    def allow(self, files: SealedFiles) -> None:
        """Let the files rest now and whenever too many are open; the segment is sealed and synced.

        The log lock is held, or no other thread can use the segment.
        """
        with self._lock:
            self._files = files
        self.rest()

    def forbid(self) -> None:
        """Keep the files open from now on: the segment is about to be changed."""
        with self._lock:  # wait for a `rest` of another thread
            self._files = None

    def woken(self) -> None:
        """Count as an open sealed segment; called without the file's lock."""
        files = self._files
        if files is not None:
            files.opened(self)

    def rest(self) -> None:
        """Close the files, if allowed; running reads end normally."""
        with self._lock:
            if self._files is not None:
                self._records.rest()
                self._indexes.rest()


class SegmentIndexes:
    """Offset, time and transaction index of one segment."""

    __slots__ = (
        "_base_offset",
        "_directory",
        "_fs",
        "_is_gone",
        "_is_unfinished",
        "_max_size_bytes",
        "_offset",
        "_opening",
        "_suffix",
        "_time",
        "_transaction",
        "on_wake",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        base_offset: int,
        max_size_bytes: int,
        *,
        suffix: str = "",
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._base_offset = base_offset
        self._max_size_bytes = max_size_bytes
        self._suffix = suffix
        self._is_unfinished = False
        self._is_gone = False
        self._opening = threading.Lock()
        self._offset: OffsetIndex | None = None
        self._time: TimeIndex | None = None
        self._transaction: TransactionIndex | None = None
        self.on_wake: Callable[[], None] = do_nothing
        """Called by the thread that opened a transaction index, without a lock."""

    @property
    def offset_path(self) -> Path:
        return self._directory / (names.index_name(self._base_offset) + self._suffix)

    @property
    def time_path(self) -> Path:
        suffix = names.TEMPORARY_SUFFIX if self._is_unfinished else self._suffix
        return self._directory / (names.time_index_name(self._base_offset) + suffix)

    @property
    def transaction_path(self) -> Path:
        return self._directory / (names.txn_index_name(self._base_offset) + self._suffix)

    @property
    def offset(self) -> OffsetIndex:
        """The offset index; created, with room for appends, if its file is missing."""
        index = self._offset
        if index is None:
            with self._to_open():
                index = self._offset = self._offset or OffsetIndex(
                    self._fs, self.offset_path, self._base_offset, self._max_size_bytes
                )
        return index

    @property
    def time(self) -> TimeIndex:
        """The time index; created, with room for appends, if its file is missing."""
        index = self._time
        if index is None:
            with self._to_open():
                index = self._time = self._time or TimeIndex(
                    self._fs, self.time_path, self._base_offset, self._max_size_bytes
                )
        return index

    @property
    def transaction(self) -> TransactionIndex:
        """The transaction index; its file is created with the first entry."""
        index = self._transaction
        if index is None:
            with self._to_open():
                index = self._transaction = self._transaction or TransactionIndex(
                    self._fs, self.transaction_path, self._base_offset
                )
            if index.size_bytes:
                self.on_wake()
        return index

    @contextmanager
    def _to_open(self) -> Iterator[None]:
        """Guard the opening of an index; ValueError after `close`.

        The file may be removed by then, and a slow reader must not mistake it for an empty index.
        """
        with self._opening:
            if self._is_gone:
                raise ValueError(f"{self.offset_path} is closed")
            yield

    @property
    def has_transactions(self) -> bool:
        """Whether the transaction index has a file."""
        return self._fs.exists(self.transaction_path)

    @property
    def has_no_aborts(self) -> bool:
        """Whether the segment has no aborted transaction, known without reading the disk."""
        return self._transaction is not None and self._transaction.size_bytes == 0

    def offset_stays_open(self) -> bool:
        """Whether the next look-up of an offset opens no file; see `SparseIndex.stays_open`."""
        return self._offset is not None and self._offset.stays_open()

    @property
    def are_known(self) -> bool:
        """Whether both sparse indexes were used, so that only a new entry may open a file."""
        return self._offset is not None and self._time is not None

    @property
    def are_open(self) -> bool:
        """Whether both sparse indexes are open, so that no append opens one."""
        offset, time = self._offset, self._time
        return not (offset is None or offset.is_resting or time is None or time.is_resting)

    @property
    def is_full(self) -> bool:
        """Whether one of the two sparse indexes has no room for another entry."""
        offset, time = self._offset, self._time
        if offset is None or time is None:
            offset, time = self.offset, self.time
        return offset.is_full or time.is_full

    @property
    def free_entries(self) -> int:
        """How many entries fit before `is_full`; both sparse indexes were used."""
        return min(self.offset.free_entries, self.time.free_entries)

    @property
    def are_unreadable(self) -> bool:
        """Whether the disk could not read a part of one of the two sparse indexes."""
        return any(
            index is not None and index.is_unreadable for index in (self._offset, self._time)
        )

    def reserve_next(self) -> None:
        """Allocate disk space for the next entries."""
        self.offset.reserve_next()
        self.time.reserve_next()

    def rest(self) -> None:
        """Close the files until they are used again; see `SparseIndex.rest`.

        All entries must be synced. Running reads end normally.
        """
        for index in (self._offset, self._time):
            if index is not None:
                index.rest()
        if not self._opening.acquire(blocking=False):
            return  # another thread opens or renames a file, which may wait for the disk
        try:
            if self._transaction is not None and self._transaction.size_bytes and not self._is_gone:
                self._transaction = None  # closed when the last read releases it
        finally:
            self._opening.release()

    def outlive_names(self) -> None:
        """Open resting files again, if possible: they are about to be renamed and removed.

        If it fails, only readers between now and the removal could miss a file.
        """
        for index in (self._offset, self._time):
            with suppress(OSError, CorruptIndex):
                if index is not None:
                    index.wake()

    def resize(self) -> None:
        """Give the sparse indexes room for appends."""
        self.offset.restore_max_size()
        self.time.restore_max_size()

    def trim(self) -> None:
        """Cut the sparse indexes to their entries."""
        self.offset.trim()
        self.time.trim()

    def reset(self) -> None:
        """Drop every entry of every index."""
        self.reset_sparse()
        self.transaction.reset()

    def reset_sparse(self) -> None:
        """Drop every entry of the offset and time index."""
        opened: tuple[tuple[Path, Callable[[], OffsetIndex | TimeIndex]], ...] = (
            (self.offset_path, lambda: self.offset),
            (self.time_path, lambda: self.time),
        )
        for path, open_index in opened:
            try:
                index = open_index()
            except CorruptIndex:  # the disk cannot read its last entry
                self._fs.remove(path)
                index = open_index()
            index.reset()

    def sanity_check(self, log_size_bytes: int, *, has_transactions: bool) -> None:
        """Raise CorruptIndex if a file cannot be an index of this segment.

        Besides Kafka's checks, the last entry must point into the log file: otherwise the index
        belongs to another file, or to a tail that was cut.
        """
        self.offset.sanity_check()
        self.time.sanity_check()
        if has_transactions:
            self.transaction.sanity_check()
        position = self._last_position()
        if position > log_size_bytes:
            raise CorruptIndex(
                f"{self.offset_path} points at byte {position} of {log_size_bytes}",
                file=str(self.offset_path),
            )

    def sound_position(self) -> int:
        """Return the position in the last entry of a valid offset index, otherwise 0."""
        try:
            self.offset.sanity_check()
        except CorruptIndex:
            return 0
        return self._last_position()

    def _last_position(self) -> int:
        """The position in the last entry of the offset index."""
        return self.offset.last_entry.position

    def begin_anew(self) -> None:
        """Close the indexes and remove their files, to rebuild them until `finish_anew`.

        A start rebuilds all three if the time index is missing, and cannot detect an incomplete
        transaction index. So the time index is removed first, and gets its name back last.
        """
        self.close_handles()
        self._offset = self._time = self._transaction = None
        self._is_unfinished = False
        self._fs.remove(self.time_path, missing_ok=True)
        self._fs.sync_directory(self._directory)
        self.remove_files()
        self._is_gone = False
        self._is_unfinished = True
        self._fs.remove(self.time_path, missing_ok=True)

    def finish_anew(self) -> None:
        """Sync the rebuilt indexes, and rename the time index so that a start uses them."""
        self.sync()
        self._fs.sync_directory(self._directory)
        self._is_unfinished = False
        self.time.rename(self.time_path)
        self._fs.sync_directory(self._directory)

    def open(self) -> None:
        """Open unused indexes and create missing ones, so that `sync` opens nothing."""
        self.offset.open_to_sync()
        self.time.open_to_sync()

    def sync(self) -> None:
        """Return once every index would survive a power cut; creates missing sparse ones."""
        self.offset.sync()
        self.time.sync()
        if self._transaction is not None:
            self._transaction.sync()

    def close(self) -> None:
        """Trim, sync and close the indexes: after a clean stop they are not rebuilt.

        Readers cannot open them afterwards.
        """
        if self._offset is not None or self._time is not None:
            for index in (self.offset, self.time):  # if one exists, the other may be missing
                index.close()
        if self._transaction is not None:
            self._transaction.sync()
        self.close_handles()

    def close_handles(self) -> None:
        """Close the indexes without writing; readers cannot open them again."""
        with self._opening:
            self._is_gone = True
        for index in (self._offset, self._time, self._transaction):
            if index is not None:
                index.close_handles()

    def change_suffix(self, new: str) -> None:
        """Rename the existing files so that their names end in `new`."""
        old_paths = (self.offset_path, self.time_path, self.transaction_path)
        with self.renaming():
            self._suffix = new
            new_paths = (self.offset_path, self.time_path, self.transaction_path)
            for old, target in zip(old_paths, new_paths, strict=True):
                if self._fs.exists(old):
                    self._fs.rename(old, target)
            self._tell_paths()

    @contextmanager
    def renaming(self) -> Iterator[None]:
        """Guard a block that renames the files or their directory: no thread opens them then."""
        with ExitStack() as held:
            held.enter_context(self._opening)
            for index in (self._offset, self._time):
                if index is not None:
                    held.enter_context(index.renaming())
            yield

    def move_to(self, directory: Path) -> None:
        """Use the files under a renamed directory; call it inside `renaming`."""
        self._directory = directory
        self._tell_paths()

    def _tell_paths(self) -> None:
        if self._offset is not None:
            self._offset.path = self.offset_path
        if self._time is not None:
            self._time.path = self.time_path
        if self._transaction is not None:
            self._transaction.path = self.transaction_path

    def remove_files(self) -> None:
        """Remove the existing files by name; an open index stays readable."""
        with self._opening:
            self._is_gone = True
        for index in (self._offset, self._time):
            if index is not None:
                index.close_if_resting()
        for path in (self.offset_path, self.time_path, self.transaction_path):
            self._fs.remove(path, missing_ok=True)
