"""The `.log` file of a segment: a sequence of batches, without header or footer.

Appends write whole batches; look-ups read batch headers from a position that an index gave. Mirrors
Kafka's `FileRecords` and `FileLogInputStream`, with one difference: the caller gives the end, which
is a batch boundary, so a batch that does not fit is damage, not a torn tail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

from engine.errors import CorruptBatch, InvalidRequest, StoredDataCorrupt
from engine.fs.port import File, FileSystem
from engine.records.batch import BatchView
from engine.records.header import HEADER_BYTES, MAGIC_2, BatchHeader, parse_header
from engine.types import Buffer

MOST_HEADERS_AT_ONCE: Final = 4096
"""How many headers the event loop reads at most (some 10 ms): an append of many batches has only
one index entry, and a full index has none for later batches."""

WALK_CHUNK_BYTES: Final = 4096
"""How much is read at once to iterate over headers: about one index interval."""

ZEROS_CHUNK_BYTES: Final = 1024 * 1024
"""How much is read at once to search for non-zero bytes."""


class NotCached(Exception):
    """A `cached_only` read would have to wait for the disk; raised and caught inside the engine."""


class BatchPosition(NamedTuple):
    """The location of a batch: `last_offset` is inclusive, `end` is an exclusive position."""

    base_offset: int
    last_offset: int
    position: int
    end: int


def do_nothing() -> None:
    """Do nothing."""


class FileRecords:
    """The batches of one file. One appender at a time; readers need no lock.

    The file may `rest`, closed, while no thread appends: the next read opens it again.
    """

    __slots__ = ("_file", "_fs", "_is_closed", "_opening", "_path", "_resting_bytes", "on_wake")

    def __init__(
        self, file: File | None, fs: FileSystem | None = None, path: Path | None = None
    ) -> None:
        """Use an open file, or the path of a resting one, which `fs` opens again."""
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
        self.on_wake: Callable[[], None] = do_nothing
        """Called by the thread that opened the file again, without the file's lock."""

    @property
    def file(self) -> File:
        """The file, opened again if it rested. OSError, StoredDataCorrupt, ValueError."""
        return self._file or self._wake()

    @property
    def path(self) -> Path:
        """The file's path; set it inside `renaming`."""
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
        """Close the file until it is read again; running reads end normally.

        Does nothing while another thread opens or renames it, which may wait for the disk.
        """
        if not self._opening.acquire(blocking=False):
            return
        try:
            if self._file is not None and not self._is_closed:
                self._resting_bytes = self._file.size_bytes
                self._file = None  # closed when the last read releases it
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
        assert self._fs is not None, "a resting file needs a file system"
        try:
            file = self._fs.open(self._path)
        except FileNotFoundError as error:
            raise self.damaged("the file is gone", 0) from error
        if file.size_bytes != self._resting_bytes:
            file.close()
            what = f"the file has {file.size_bytes} bytes; it had {self._resting_bytes}"
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

        Raises NotCached if `cached_only` and the disk is needed, StoredDataCorrupt if the file is
        too short.
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

        Both must be batch boundaries. Raises StoredDataCorrupt at the first impossible frame; the
        error's offset is the end of the previous frame, or `sought` without one. The checksum of
        messages of magic 0 and 1 is verified, so that a batch with a damaged magic byte cannot pass
        for a message with fewer offsets. With `cached_only` raises NotCached after
        MOST_HEADERS_AT_ONCE.
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
        """As `headers`; StoredDataCorrupt too if offsets descend, or begin below `next_offset`.

        The checksum does not cover a batch's base offset, so only its neighbours show whether it is
        correct, and a look-up that uses a wrong one would skip records.
        """
        for at, header in self.headers(position, end, cached_only=cached_only, sought=next_offset):
            if header.base_offset < next_offset or header.last_offset < header.base_offset:
                raise self.damaged(
                    f"a batch of offsets {header.base_offset} to {header.last_offset}, but "
                    f"{next_offset} is next",
                    at,
                    header.base_offset,
                )
            yield at, header
            next_offset = header.next_offset

    def batch_at_or_after(
        self, offset: int, position: int, end: int, *, next_offset: int, cached_only: bool = False
    ) -> BatchPosition | None:
        """Return the first batch that ends at or after `offset`, reading headers from `position`.

        Raises StoredDataCorrupt for offsets below `next_offset`.
        """
        for at, header in self.ascending_headers(
            position, end, next_offset=next_offset, cached_only=cached_only
        ):
            if header.last_offset >= offset:
                base_offset = self.first_offset(at, header, cached_only=cached_only)
                return BatchPosition(base_offset, header.last_offset, at, at + header.size_bytes)
        return None

    def next_offset_at(self, position: int, start: int, *, cached_only: bool = False) -> int | None:
        """Return the offset after the batch that ends at `position`, reading from `start`.

        None if no batch ends there.
        """
        next_offset = None
        try:
            for _, header in self.headers(start, position, cached_only=cached_only):
                next_offset = header.next_offset
        except StoredDataCorrupt:
            return None
        return next_offset

    def base_offset_at(self, position: int, *, cached_only: bool = False) -> int | None:
        """Return the base offset in the header at `position`; None if it cannot be read."""
        try:
            walk = self.headers(position, self.size_bytes, cached_only=cached_only)
            return next((header.base_offset for _, header in walk), None)
        except StoredDataCorrupt:
            return None

    def first_offset(self, position: int, header: BatchHeader, *, cached_only: bool = False) -> int:
        """Return the first offset of the batch at `position`, in any format.

        Compressed messages of magic 0 or 1 are decompressed for that. Raises StoredDataCorrupt if
        that fails, and NotCached.
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
        """Return the batch with that header, verified. Raises StoredDataCorrupt and NotCached."""
        batch = BatchView(self.read(position, header.size_bytes, cached_only=cached_only))
        try:
            batch.ensure_intact()
        except CorruptBatch as error:
            raise self.damaged(str(error), position, header.base_offset) from error
        return batch

    def is_zeros_from(self, position: int) -> bool:
        """Whether only zeros follow, which a file system leaves for unwritten data."""
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
        (self._file or self._wake()).sync()

    def close(self) -> None:
        """Close the file; no read opens it again."""
        with self._opening:
            self._is_closed = True
            if self._file is not None:
                self._file.close()

    def close_if_resting(self) -> None:
        """Prevent reads from opening the file again: it is about to be removed."""
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
