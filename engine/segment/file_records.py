"""The `.log` file of a segment: batches one after another, no header, no footer.

Appends write whole batches; look-ups walk batch headers from a position that an index gave. Mirrors
Kafka's `FileRecords` and `FileLogInputStream`, with one difference: walking stops at the end it is
given, always a batch boundary, so that a frame which does not fit there is damage and no tail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

from engine.errors import CorruptBatch, InvalidRequest, StoredDataCorrupt
from engine.fs.filesystem import File, FileSystem
from engine.records.batch import BatchView
from engine.records.header import HEADER_BYTES, MAGIC_2, BatchHeader, parse_header
from engine.types import Buffer

MOST_HEADERS_AT_ONCE: Final = 4096
"""So many headers are read on the event loop (some 10 ms): an append of many batches has one index
entry, and a full index has none for what follows."""

WALK_CHUNK_BYTES: Final = 4096
"""How much a walk over headers reads at once: about one index interval."""

ZEROS_CHUNK_BYTES: Final = 1024 * 1024
"""How much is looked through at once for something but zeros."""


class NotCached(Exception):
    """A read that must not wait for the disk would have to; raised and caught inside the engine."""


class BatchPosition(NamedTuple):
    """One batch in its file; `last_offset` is inclusive, `end` a position, exclusive."""

    base_offset: int
    last_offset: int
    position: int
    end: int


def nobody_to_tell() -> None:
    """Listen to nothing."""


class FileRecords:
    """The batches of one file. One appender at a time; readers need no lock.

    The file may `rest`, closed, while no thread appends: the next read opens it again.
    """

    __slots__ = ("_file", "_fs", "_is_closed", "_opening", "_path", "_resting_bytes", "on_wake")

    def __init__(
        self, file: File | None, fs: FileSystem | None = None, path: Path | None = None
    ) -> None:
        """Take an open file, or the path of one that rests; with `fs` it is opened again."""
        self._fs = fs
        self._file = file
        self._resting_bytes = 0
        if file is not None:
            self._path = file.path
        else:
            assert fs is not None
            assert path is not None
            self._path = path
            self._resting_bytes = fs.size_bytes(path)
        self._is_closed = False
        self._opening = threading.Lock()
        self.on_wake: Callable[[], None] = nobody_to_tell
        """Called, without a lock of the file, by the thread that has opened it again."""

    @property
    def file(self) -> File:
        """The open file; opened again if it rested. OSError, StoredDataCorrupt, ValueError."""
        return self._file or self._wake()

    @property
    def path(self) -> Path:
        """Where the file lies now; set it inside `renaming`."""
        return self._path

    @path.setter
    def path(self, path: Path) -> None:
        self._path = path
        if self._file is not None:
            self._file.path = path

    @property
    def size_bytes(self) -> int:
        file = self._file
        return self._resting_bytes if file is None else file.size_bytes

    @property
    def is_resting(self) -> bool:
        """Whether the next read has to open the file."""
        return self._file is None

    def rest(self) -> None:
        """Let go of the file until it is read again; reads that are under way end normally.

        Nothing happens while another thread opens or renames it, which may wait for the disk.
        """
        if not self._opening.acquire(blocking=False):
            return
        try:
            if self._file is not None and not self._is_closed:
                self._resting_bytes = self._file.size_bytes
                self._file = None  # closed with the last read that uses it
        finally:
            self._opening.release()

    def renaming(self) -> AbstractContextManager[bool]:
        """Guard a block that renames or removes the file: no thread opens it meanwhile."""
        return self._opening

    def _wake(self) -> File:
        with self._opening:
            file = self._file
            if file is None:
                file = self._open_again()
        self.on_wake()
        return file

    def _open_again(self) -> File:
        if self._is_closed:
            raise ValueError(f"{self._path} is closed")
        assert self._fs is not None, "a file that rests was given its file system"
        try:
            file = self._fs.open(self._path)
        except FileNotFoundError as error:
            raise self.damaged("the file is gone", 0) from error
        if file.size_bytes != self._resting_bytes:
            file.close()
            what = f"the file has {file.size_bytes} bytes, and had {self._resting_bytes}"
            raise self.damaged(what, min(file.size_bytes, self._resting_bytes))
        self._file = file
        return file

    def append(self, data: Buffer) -> int:
        """Write whole batches at the end; return the position where they start."""
        return (self._file or self._wake()).append(data)

    def append_many(self, batches: Sequence[Buffer]) -> int:
        """Write whole batches at the end without joining them; as `append`."""
        return self.file.append_many(batches)

    def read(self, position: int, length: int, *, cached_only: bool = False) -> Buffer:
        """Return exactly `length` bytes.

        Raises NotCached if `cached_only` and the disk would be needed, StoredDataCorrupt if the
        file is shorter than it was.
        """
        file = self._file
        if cached_only:
            data = None if file is None else file.read_cached(position, length)
            if data is None:
                raise NotCached
        else:
            data = (file or self._wake()).read_at(position, length)
        if len(data) != length:
            raise StoredDataCorrupt(
                f"{self.path} ends at {position + len(data)}, {position + length} was expected",
                file=self.path,
                position=position + len(data),
                offset=-1,
            )
        return data

    def headers(
        self, position: int, end: int, *, cached_only: bool = False, sought: int = -1
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and header of each batch that starts in [position, end).

        Both must be batch boundaries. Raises StoredDataCorrupt at the first frame that cannot be;
        its offset is the one behind the frame before, or `sought` if there is none. A message of
        magic 0 or 1 has its checksum verified: a batch whose magic is damaged must not pass for one
        that holds fewer offsets. With `cached_only` raises NotCached after MOST_HEADERS_AT_ONCE.
        """
        chunk: Buffer = b""
        chunk_position = position
        left = MOST_HEADERS_AT_ONCE if cached_only else -1
        while position < end:
            if left == 0:
                raise NotCached
            left -= 1
            if position + HEADER_BYTES > chunk_position + len(chunk):
                chunk_position = position
                length = min(WALK_CHUNK_BYTES, end - position)
                chunk = self.read(position, length, cached_only=cached_only)
            try:
                header = parse_header(chunk, position - chunk_position)
            except CorruptBatch as error:
                raise self.damaged(str(error), position, sought) from error
            if position + header.size_bytes > end:
                what = f"a batch of {header.size_bytes} bytes does not fit"
                raise self.damaged(what, position, sought)
            if header.magic != MAGIC_2:
                self.intact_batch(position, header, cached_only=cached_only)
            yield position, header
            position += header.size_bytes
            sought = header.next_offset

    def ascending_headers(
        self, position: int, end: int, *, next_offset: int, cached_only: bool = False
    ) -> Iterator[tuple[int, BatchHeader]]:
        """As `headers`; raises StoredDataCorrupt too where offsets go back, or below `next_offset`.

        The offset a batch begins with is not under its checksum: only its neighbours tell whether
        it is right, and a look-up that met a wrong one would pass over records.
        """
        for at, header in self.headers(position, end, cached_only=cached_only, sought=next_offset):
            if header.base_offset < next_offset or header.last_offset < header.base_offset:
                raise self.damaged(
                    f"a batch of offsets {header.base_offset} to {header.last_offset} where "
                    f"{next_offset} is next",
                    at,
                    header.base_offset,
                )
            yield at, header
            next_offset = header.next_offset

    def batch_at_or_after(
        self, offset: int, position: int, end: int, *, next_offset: int, cached_only: bool = False
    ) -> BatchPosition | None:
        """Return the first batch that ends at or after `offset`, walking from `position`.

        Nothing from there on lies below `next_offset`.
        """
        for at, header in self.ascending_headers(
            position, end, next_offset=next_offset, cached_only=cached_only
        ):
            if header.last_offset >= offset:
                base_offset = self.first_offset(at, header, cached_only=cached_only)
                return BatchPosition(base_offset, header.last_offset, at, at + header.size_bytes)
        return None

    def next_offset_at(self, position: int, start: int, *, cached_only: bool = False) -> int | None:
        """Return the offset behind the batch that ends at `position`, walking from `start`.

        None if no batches lead there.
        """
        next_offset = None
        try:
            for _, header in self.headers(start, position, cached_only=cached_only):
                next_offset = header.next_offset
        except StoredDataCorrupt:
            return None
        return next_offset

    def base_offset_at(self, position: int, *, cached_only: bool = False) -> int | None:
        """Return what the header of the batch at `position` says; None if there is none to read."""
        try:
            walk = self.headers(position, self.size_bytes, cached_only=cached_only)
            return next((header.base_offset for _, header in walk), None)
        except StoredDataCorrupt:
            return None

    def first_offset(self, position: int, header: BatchHeader, *, cached_only: bool = False) -> int:
        """Return the offset that the batch at `position` begins with, in any format.

        A compressed message of magic 0 or 1 is decompressed for that. Raises StoredDataCorrupt if
        it cannot be, and NotCached.
        """
        if header.magic == MAGIC_2:
            return header.base_offset
        batch = self.intact_batch(position, header, cached_only=cached_only)
        try:
            return batch.complete_header().base_offset
        except InvalidRequest as error:
            raise self.damaged(str(error), position, header.base_offset) from error

    def batches(
        self, position: int, end: int, *, cached_only: bool = False
    ) -> Iterator[tuple[int, BatchView]]:
        """Yield the position and intact bytes of each batch in [position, end).

        Raises StoredDataCorrupt for a batch whose checksum is wrong.
        """
        for at, header in self.headers(position, end, cached_only=cached_only):
            yield at, self.intact_batch(at, header, cached_only=cached_only)

    def intact_batch(
        self, position: int, header: BatchHeader, *, cached_only: bool = False
    ) -> BatchView:
        """Return the batch with that header; raises StoredDataCorrupt, and NotCached."""
        batch = BatchView(self.read(position, header.size_bytes, cached_only=cached_only))
        try:
            batch.ensure_intact()
        except CorruptBatch as error:
            raise self.damaged(str(error), position, header.base_offset) from error
        return batch

    def is_zeros_from(self, position: int) -> bool:
        """Whether only zeros follow, as a file system leaves them where data never arrived."""
        while position < self.size_bytes:
            rest = self.read(position, min(ZEROS_CHUNK_BYTES, self.size_bytes - position))
            if bytes(rest).strip(b"\0"):
                return False
            position += len(rest)
        return True

    def truncate(self, size_bytes: int) -> None:
        self.file.truncate(size_bytes)

    def sync(self) -> None:
        """Return once every byte written so far would survive a power cut."""
        self.file.sync()

    def close(self) -> None:
        """Close the file, for good: no read opens it again."""
        with self._opening:
            self._is_closed = True
            if self._file is not None:
                self._file.close()

    def close_if_resting(self) -> None:
        """Let no read open the file again: it is about to be removed."""
        with self._opening:
            self._is_closed = self._is_closed or self._file is None

    def damaged(self, what: str, position: int, offset: int = -1) -> StoredDataCorrupt:
        """Return the error for damage at `position`."""
        return StoredDataCorrupt(
            f"{self.path}, byte {position}: {what}",
            file=self.path,
            position=position,
            offset=offset,
        )
