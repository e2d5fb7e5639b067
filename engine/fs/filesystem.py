"""The machine's file system: the one module of the engine that calls `os` and `mmap`."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from mmap import ACCESS_READ, ACCESS_WRITE, MADV_RANDOM, mmap
from pathlib import Path
from typing import Any, Final, Self

from engine.fs.port import DirectoryEntry, File, FileSystem, HeldLock, MappedFile
from engine.types import Buffer

__all__ = ["File", "FileSystem", "HeldLock", "MappedFile", "PosixFileSystem"]

BUFFERS_PER_WRITE: Final = 1024
"""How many buffers one system call takes: IOV_MAX of Linux and macOS."""

RESERVE_BYTES: Final = 64 * 1024
"""How much of a sparse map is set aside on the disk at a time: 8,192 entries of an offset index."""

SMALL_FILE_BYTES: Final = 64 * 1024
"""How much of a file that is read whole is read at once."""

_FILE_MODE: Final = 0o644

# What a platform lacks is replaced here, so that no call site knows about platforms.
_sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
_reserve: Final[Callable[[int, int, int], None]] = getattr(os, "posix_fallocate", lambda *_: None)
_DO_NOT_NEED: Final[int] = getattr(os, "POSIX_FADV_DONTNEED", 0)
_WILL_NEED: Final[int] = getattr(os, "POSIX_FADV_WILLNEED", 0)
_advise: Final[Callable[[int, int, int, int], None]] = getattr(os, "posix_fadvise", lambda *_: None)
_NO_WAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_MAP_OPTIONS: Final[dict[str, Any]] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

# `bytearray(n)` without its zeros: to write megabytes of them costs as much as reading into them.
_new_buffer: Final = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_buffer.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_buffer.restype = ctypes.py_object


class _Descriptor:
    """A file descriptor that is closed when the last one who uses it lets go of it.

    Whoever makes a system call keeps a reference meanwhile. So closing a file under a reader cannot
    make the reader read from whatever file was given the same number next.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _Closed:
    """What a closed file holds instead of a descriptor."""

    __slots__ = ()

    @property
    def number(self) -> int:
        raise ValueError("the file is closed")


_CLOSED: Final = _Closed()


class PosixFile:
    """A `File` on system calls that carry their position, so that readers share one descriptor."""

    __slots__ = ("_descriptor", "_no_wait", "path", "size_bytes")

    def __init__(self, path: Path, number: int, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._descriptor: _Descriptor | _Closed = _Descriptor(number)
        self._no_wait = _NO_WAIT

    def append(self, data: Buffer) -> int:
        position = self.size_bytes
        descriptor = self._descriptor
        length = len(data)
        try:
            written = os.pwrite(descriptor.number, data, position)
            while written < length:
                # Short once, for a signal or a disk that fills up; the next call tells which.
                written += os.pwrite(
                    descriptor.number, memoryview(data)[written:], position + written
                )
        except OSError:
            self._cut_half_written(descriptor, position)
            raise
        self.size_bytes = position + length
        return position

    def append_many(self, buffers: Sequence[Buffer]) -> int:
        position = end = self.size_bytes
        descriptor = self._descriptor
        try:
            for first in range(0, len(buffers), BUFFERS_PER_WRITE):
                chunk = buffers[first : first + BUFFERS_PER_WRITE]
                length = sum(map(len, chunk))
                written = os.pwritev(descriptor.number, chunk, end)
                while written < length:
                    rest = memoryview(b"".join(chunk))[written:]
                    written += os.pwrite(descriptor.number, rest, end + written)
                end += length
        except OSError:
            self._cut_half_written(descriptor, position)
            raise
        self.size_bytes = end
        return position

    def read_at(self, position: int, length: int) -> bytes:
        length = min(length, self.size_bytes - position)
        if length <= 0:
            return b""
        descriptor = self._descriptor
        data = os.pread(descriptor.number, length, position)
        while len(data) < length:
            more = os.pread(descriptor.number, length - len(data), position + len(data))
            if not more:  # cut since its size was looked at
                break
            data += more
        return data

    def read_cached(self, position: int, length: int) -> Buffer | None:
        if not self._no_wait:
            return self.read_at(position, length)
        length = min(length, self.size_bytes - position)
        if length <= 0:
            return b""
        data: bytearray = _new_buffer(None, length)  # handed out only if all of it was read
        try:
            count = os.preadv(self._descriptor.number, [data], position, self._no_wait)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._no_wait = 0  # this file system cannot tell; do not ask again
            return self.read_at(position, length)
        return data if count == length else None

    def prefetch(self, position: int, length: int) -> None:
        descriptor = self._descriptor
        _advise(descriptor.number, position, length, _WILL_NEED)

    def truncate(self, size_bytes: int) -> None:
        if not 0 <= size_bytes <= self.size_bytes:
            raise ValueError(f"cannot cut {self.path} of {self.size_bytes} bytes to {size_bytes}")
        descriptor = self._descriptor
        self.size_bytes = size_bytes  # first, so that no reader asks for what is about to go
        if size_bytes < os.fstat(descriptor.number).st_size:
            os.ftruncate(descriptor.number, size_bytes)

    def sync(self) -> None:
        descriptor = self._descriptor
        _sync_data(descriptor.number)

    def sync_all(self) -> None:
        descriptor = self._descriptor
        os.fsync(descriptor.number)

    def forget_cached(self) -> None:
        descriptor = self._descriptor
        _sync_data(descriptor.number)
        _advise(descriptor.number, 0, 0, _DO_NOT_NEED)

    def modified_ms(self) -> int:
        return os.fstat(self._descriptor.number).st_mtime_ns // 1_000_000

    def version(self) -> str:
        # Not the time of modification, which the cleaner sets; a file number is given out again.
        status = os.fstat(self._descriptor.number)
        return f"{status.st_ino:x}-{status.st_ctime_ns:x}"

    def close(self) -> None:
        self._descriptor = _CLOSED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _cut_half_written(self, descriptor: _Descriptor | _Closed, position: int) -> None:
        """Cut what a failed append left; if that fails too, its error is raised."""
        if os.fstat(descriptor.number).st_size > position:
            os.ftruncate(descriptor.number, position)


class PosixMappedFile:
    """A `MappedFile`. On Linux, syncing the file covers what was stored through its map.

    `mmap.flush` is not used: it holds the interpreter's lock while the disk works.
    """

    __slots__ = (
        "_access",
        "_descriptor",
        "_map",
        "buffer",
        "is_new",
        "path",
        "reserved_bytes",
        "size_bytes",
    )

    def __init__(self, path: Path, number: int, *, is_new: bool, read_only: bool) -> None:
        self.path = path
        self.is_new = is_new
        self.reserved_bytes = 0
        self._descriptor: _Descriptor | _Closed = _Descriptor(number)
        self._access = ACCESS_READ if read_only else ACCESS_WRITE
        self._open(os.fstat(number).st_size)

    def reserve(self, end: int) -> None:
        end = min(-(-end // RESERVE_BYTES) * RESERVE_BYTES, self.size_bytes)
        if end > self.reserved_bytes:
            _reserve(self._descriptor.number, self.reserved_bytes, end - self.reserved_bytes)
            self.reserved_bytes = end

    def resize(self, size_bytes: int) -> None:
        self._unmap()  # first: touching a page behind the end of its file kills the process
        os.ftruncate(self._descriptor.number, size_bytes)
        self.reserved_bytes = min(self.reserved_bytes, size_bytes)
        self._open(size_bytes)

    def sync(self) -> None:
        descriptor = self._descriptor
        _sync_data(descriptor.number)

    def close(self) -> None:
        self._unmap()
        self._descriptor = _CLOSED

    def _open(self, size_bytes: int) -> None:
        # An empty file cannot be mapped, and nothing can be stored in it.
        self._map = (
            mmap(self._descriptor.number, size_bytes, access=self._access, **_MAP_OPTIONS)
            if size_bytes
            else None
        )
        if self._map is not None:
            # Without, a new kernel's ext4 reads ahead around the first entry stored in a sparse
            # file, megabytes of page cache that all become dirty: 20 ms where 40 µs are enough.
            self._map.madvise(MADV_RANDOM)
        self.size_bytes = size_bytes
        self.buffer = memoryview(self._map or b"")

    def _unmap(self) -> None:
        self.buffer.release()
        if self._map is not None:
            self._map.close()
            self._map = None


class _PosixLock:
    """A POSIX record lock, as Java takes on a file; see `PosixFileSystem.lock`."""

    _held_here: Final[set[tuple[int, int]]] = set()
    _registry: Final = threading.Lock()

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._registry:
            self._number: int | None = self._acquire()
            self._identity = _identity(os.fstat(self._number))
            self._held_here.add(self._identity)

    def ensure_held(self) -> None:
        if not self._is_in_place():
            raise OSError(
                errno.ESTALE,
                "the lock file was removed or replaced, so that another process may have got in",
                str(self._path),
            )

    def release(self) -> None:
        with self._registry:
            if self._number is None:
                return
            self._held_here.discard(self._identity)
            # Removed before it is released: the next owner must make a file of its own.
            with contextlib.suppress(OSError):  # or takes the one that cannot be removed
                if self._is_in_place():  # else it is that of the next owner, who has one already
                    os.unlink(self._path)
            os.close(self._number)
            self._number = None

    def _is_in_place(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return _identity(os.stat(self._path)) == self._identity
        return False

    def _acquire(self) -> int:
        while True:
            # Such a lock does not exclude its own process, and is lost when the process closes any
            # descriptor of the file: so a file that is held here must not even be opened.
            with contextlib.suppress(FileNotFoundError):
                if _identity(os.stat(self._path)) in self._held_here:
                    raise BlockingIOError(
                        errno.EWOULDBLOCK, "locked by this process", str(self._path)
                    )
            number = os.open(self._path, os.O_RDWR | os.O_CREAT, _FILE_MODE)
            try:
                fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with contextlib.suppress(FileNotFoundError):
                    if _identity(os.stat(self._path)) == _identity(os.fstat(number)):
                        return number
            except OSError as error:
                os.close(number)
                if error.errno not in {errno.EACCES, errno.EAGAIN}:
                    raise
                raise BlockingIOError(
                    errno.EWOULDBLOCK, "locked by another process", str(self._path)
                ) from error
            os.close(number)  # its last owner removed the file between our two calls: try again


class PosixFileSystem:
    """The `FileSystem` of the machine."""

    def open(
        self,
        path: Path,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        preallocate_bytes: int = 0,
    ) -> PosixFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create and (exclusive or preallocate_bytes):
            try:
                number = os.open(path, flags | os.O_CREAT | os.O_EXCL, _FILE_MODE)
            except FileExistsError:
                if exclusive:
                    raise
            else:
                file = PosixFile(path, number, 0)
                if preallocate_bytes:
                    os.ftruncate(number, preallocate_bytes)
                return file
        number = os.open(path, flags | (os.O_CREAT if create else 0), _FILE_MODE)
        return PosixFile(path, number, os.fstat(number).st_size)

    def open_map(
        self, path: Path, size_bytes: int | None = None, *, read_only: bool = False
    ) -> PosixMappedFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        with contextlib.suppress(FileNotFoundError):
            return PosixMappedFile(path, os.open(path, flags), is_new=False, read_only=read_only)
        if read_only or size_bytes is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        number = os.open(path, flags | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        mapped = PosixMappedFile(path, number, is_new=True, read_only=False)
        try:
            mapped.resize(size_bytes)  # a map takes a descriptor, too
        except OSError:
            os.unlink(path)  # or it would be found next time, full of zeros
            raise
        return mapped

    def exists(self, path: Path) -> bool:
        return _mode(path, follow_symlinks=False) != 0

    def is_directory(self, path: Path) -> bool:
        return stat.S_ISDIR(_mode(path))

    def size_bytes(self, path: Path) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: Path) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)

    def read_bytes(self, path: Path) -> bytes:
        # Half the system calls of `Path.read_bytes`: a start reads a few small files of each log.
        number = os.open(path, os.O_RDONLY)
        try:
            pieces = [os.read(number, SMALL_FILE_BYTES)]
            while pieces[-1]:
                pieces.append(os.read(number, SMALL_FILE_BYTES))
            return b"".join(pieces)
        finally:
            os.close(number)

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def list_entries(self, path: Path) -> list[DirectoryEntry]:
        with os.scandir(path) as entries:
            return sorted(DirectoryEntry(entry.name, _is_directory(entry)) for entry in entries)

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        path.mkdir(parents=parents, exist_ok=True)

    def open_directory(self, path: Path) -> PosixFile:
        return PosixFile(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY), 0)

    def sync_directory(self, path: Path) -> None:
        with self.open_directory(path) as directory:
            directory.sync_all()

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        path.unlink(missing_ok=missing_ok)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def free_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).free

    def lock(self, path: Path) -> HeldLock:
        return _PosixLock(path)


def _mode(path: Path, *, follow_symlinks: bool = True) -> int:
    """Return 0 for what is not there; `os.path` takes all that cannot be looked at for that."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.stat(path, follow_symlinks=follow_symlinks).st_mode
    return 0


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """As `os.path.isdir`, without a system call but for a symbolic link."""
    return os.path.isdir(entry) if entry.is_symlink() else entry.is_dir(follow_symlinks=False)


def _identity(status: os.stat_result) -> tuple[int, int]:
    """What tells one file from another, whatever its name."""
    return status.st_dev, status.st_ino
