"""The machine's files, locks and file system, with POSIX system calls.

The only module of the engine that calls the operating system.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from engine.fs import names
from engine.fs.port import (
    MAX_SMALL_FILE_BYTES,
    DirectoryEntry,
    HeldLock,
    NotRegularFile,
    Space,
)
from engine.types import Buffer

BUFFERS_PER_WRITE: Final = 1024
"""How many buffers one system call accepts: IOV_MAX of Linux and macOS."""

RESERVE_BYTES: Final = 64 * 1024
"""How much disk space is allocated for an index at a time: 8,192 offset index entries."""

FILE_MODE: Final = 0o600
"""Only the user who runs the service may read records and keys, whatever the umask is."""

# Replacements for what a platform lacks, so that call sites need not know the platform.
_sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
_reserve: Final[Callable[[int, int, int], None]] = getattr(os, "posix_fallocate", lambda *_: None)
_DO_NOT_NEED: Final[int] = getattr(os, "POSIX_FADV_DONTNEED", 0)
_WILL_NEED: Final[int] = getattr(os, "POSIX_FADV_WILLNEED", 0)
_advise: Final[Callable[[int, int, int, int], None]] = getattr(os, "posix_fadvise", lambda *_: None)
_NO_WAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)

# `bytearray(n)` without zeroing, which would cost as much as the read itself.
_new_buffer: Final = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_buffer.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_buffer.restype = ctypes.py_object


def open_regular(
    path: Path, flags: int, *, follow_links: bool = False
) -> tuple[int, os.stat_result]:
    """Open a regular file; return its descriptor and its status.

    Anything else is refused: a link could lead out of the data directory, and opening a FIFO would
    wait for a writer.
    """
    try:
        number = os.open(
            path, flags | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW), FILE_MODE
        )
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links:
            what = "it is a symbolic link, which is not followed"
            raise NotRegularFile(errno.ELOOP, what, str(path)) from error
        raise
    status = os.fstat(number)
    if stat.S_ISREG(status.st_mode):
        return number, status
    os.close(number)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise NotRegularFile(errno.ENXIO, "it is not a regular file", str(path))


class _Descriptor:
    """A file descriptor that is closed when its last user has released it.

    Every system call holds a reference. So a file that is closed during a read cannot make the
    reader read from another file that got the same descriptor number.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _Closed:
    """Stands for the descriptor of a closed file."""

    __slots__ = ()

    @property
    def number(self) -> int:
        raise ValueError("the file is closed")


_CLOSED: Final = _Closed()


class PosixFile:
    """A `File` with positional reads and writes, so that readers share one descriptor."""

    __slots__ = (
        "_descriptor",
        "_has_lost",
        "_no_wait",
        "_syncing",
        "device",
        "is_preallocated",
        "path",
        "size_bytes",
    )

    def __init__(self, path: Path, number: int, status: os.stat_result) -> None:
        self.path = path
        self.size_bytes = status.st_size
        self.device = status.st_dev
        self.is_preallocated = False
        self._descriptor: _Descriptor | _Closed = _Descriptor(number)
        self._no_wait = _NO_WAIT
        self._syncing = threading.Lock()
        self._has_lost = False

    def append(self, data: Buffer) -> int:
        position = self.size_bytes
        descriptor = self._descriptor
        length = len(data)
        try:
            written = os.pwrite(descriptor.number, data, position)
            while written < length:
                # A write may be short because of a signal or a full disk; the next call tells
                # which.
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
            if not more:  # truncated since its size was read
                break
            data += more
        return data

    def read_cached(self, position: int, length: int) -> Buffer | None:
        if not self._no_wait:
            return self.read_at(position, length)
        length = min(length, self.size_bytes - position)
        if length <= 0:
            return b""
        data: bytearray = _new_buffer(None, length)  # returned only if it was filled
        try:
            count = os.preadv(self._descriptor.number, [data], position, self._no_wait)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._no_wait = 0  # this file system cannot tell; do not try again
            return self.read_at(position, length)
        return data if count == length else None

    def read_aside(self, position: int, length: int) -> Buffer:
        cached = self.read_cached(position, length)
        if cached is not None and len(cached) == min(length, self.size_bytes - position):
            return cached
        data = self.read_at(position, length)
        _advise(self._descriptor.number, position, length, _DO_NOT_NEED)
        return data

    def prefetch(self, position: int, length: int) -> None:
        descriptor = self._descriptor
        _advise(descriptor.number, position, length, _WILL_NEED)

    def truncate(self, size_bytes: int) -> None:
        if not 0 <= size_bytes <= self.size_bytes:
            raise ValueError(f"cannot cut {self.path} of {self.size_bytes} bytes to {size_bytes}")
        descriptor = self._descriptor
        self.size_bytes = size_bytes  # first, so that readers do not ask for the bytes that are cut
        if size_bytes < os.fstat(descriptor.number).st_size:
            os.ftruncate(descriptor.number, size_bytes)

    def sync(self) -> None:
        self._sync(_sync_data)

    def sync_all(self) -> None:
        self._sync(os.fsync)

    def forget_cached(self) -> None:
        descriptor = self._descriptor
        self._sync(_sync_data)
        _advise(descriptor.number, 0, 0, _DO_NOT_NEED)

    def _sync(self, call: Callable[[int], None]) -> None:
        """Sync, one thread at a time; the kernel reports a failure only to the first."""
        descriptor = self._descriptor
        with self._syncing:
            if self._has_lost:
                raise OSError(errno.EIO, "an earlier sync of the file has failed", str(self.path))
            try:
                call(descriptor.number)
            except OSError:
                self._has_lost = True
                raise

    def modified_ms(self) -> int:
        return os.fstat(self._descriptor.number).st_mtime_ns // 1_000_000

    def version(self) -> str:
        # Not the modification time, which the cleaner sets; inode numbers are reused.
        status = os.fstat(self._descriptor.number)
        return f"{status.st_ino:x}-{status.st_ctime_ns:x}"

    def close(self) -> None:
        self._descriptor = _CLOSED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _cut_half_written(self, descriptor: _Descriptor | _Closed, position: int) -> None:
        """Cut off what a failed append wrote; if that fails too, raise EIO.

        The file has changed then, so callers must not treat the error as transient.
        """
        try:
            if os.fstat(descriptor.number).st_size > position:
                os.ftruncate(descriptor.number, position)
        except OSError as error:
            raise OSError(errno.EIO, f"cannot undo an append: {error}", str(self.path)) from error


class PosixIndexFile:
    """An `IndexFile`."""

    __slots__ = ("_descriptor", "is_new", "path", "reserved_bytes", "size_bytes")

    def __init__(self, path: Path, number: int, size_bytes: int, *, is_new: bool) -> None:
        self.path = path
        self.is_new = is_new
        self.reserved_bytes = 0
        self.size_bytes = size_bytes
        self._descriptor: _Descriptor | _Closed = _Descriptor(number)

    def load(self, position: int, length: int) -> bytes:
        descriptor = self._descriptor
        return os.pread(descriptor.number, length, position)

    def store(self, position: int, data: bytes) -> None:
        descriptor = self._descriptor
        written = os.pwrite(descriptor.number, data, position)
        while written < len(data):
            written += os.pwrite(descriptor.number, data[written:], position + written)

    def reserve(self, end: int) -> None:
        end = min(-(-end // RESERVE_BYTES) * RESERVE_BYTES, self.size_bytes)
        if end > self.reserved_bytes:
            _reserve(self._descriptor.number, self.reserved_bytes, end - self.reserved_bytes)
            self.reserved_bytes = end

    def resize(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor.number, size_bytes)
        self.reserved_bytes = min(self.reserved_bytes, size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        descriptor = self._descriptor
        _sync_data(descriptor.number)

    def close(self) -> None:
        self._descriptor = _CLOSED


class PosixLock:
    """A POSIX record lock, as Java takes it; see `PosixFileSystem.lock`."""

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
                "the lock file was removed or replaced; another process may own the directory",
                str(self._path),
            )

    def release(self) -> None:
        with self._registry:
            if self._number is None:
                return
            self._held_here.discard(self._identity)
            # Removed before the lock is released, so that the next owner creates its own file.
            with contextlib.suppress(OSError):  # a file that stays does no harm
                if self._is_in_place():  # otherwise it is the next owner's file
                    os.unlink(self._path)
            os.close(self._number)
            self._number = None

    def _is_in_place(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return _identity(os.stat(self._path)) == self._identity
        return False

    def _acquire(self) -> int:
        while True:
            # A POSIX lock does not exclude its own process, and the process loses it when it closes
            # any descriptor of the file. So a file that this process has locked must not even be
            # opened.
            with contextlib.suppress(FileNotFoundError):
                if _identity(os.stat(self._path)) in self._held_here:
                    raise BlockingIOError(
                        errno.EWOULDBLOCK, "locked by this process", str(self._path)
                    )
            number, _ = open_regular(self._path, os.O_RDWR | os.O_CREAT)
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
            os.close(number)  # the last owner removed the file between the two calls: try again


def _identity(status: os.stat_result) -> tuple[int, int]:
    """The identity of a file, independent of its name."""
    return status.st_dev, status.st_ino


FIRST_RELEASE: Final = (5, 8)
"""The first Linux release whose syncfs(2) reports writes that failed since the last call."""

TYPES: Final = frozenset({"ext4", "xfs"})
"""File systems whose syncfs(2) writes everything back, reports its errors and flushes the disk."""

_MOUNTS: Final = Path("/proc/self/mountinfo")
_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)


class PosixFileSystemHandle:
    """An `OpenFileSystem`: a directory in it, kept open.

    The kernel reports a failed write once to each open file description, and never to one that
    was opened later.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number: int | None = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.device = os.fstat(self._number).st_dev

    def sync_all(self) -> None:
        if self._number is None:
            raise ValueError("the file system is closed")
        if _LIBRARY.syncfs(self._number):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(self._path))

    def close(self) -> None:
        if self._number is not None:
            os.close(self._number)
            self._number = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reports_failed_writes(path: Path) -> bool:
    """Whether syncfs(2) on the file system of `path` reports every write that failed."""
    if sys.platform != "linux" or _release() < FIRST_RELEASE:
        return False
    device = path.stat().st_dev
    return type_of(_MOUNTS.read_text(), os.major(device), os.minor(device)) in TYPES


def type_of(mounts: str, major: int, minor: int) -> str | None:
    """Return the type of the file system on a device, as `/proc/self/mountinfo` lists it.

    Returns None if it is not listed, as for btrfs volumes.
    """
    for line in mounts.splitlines():
        place, _, source = line.partition(" - ")
        if place.split(" ", 3)[2] == f"{major}:{minor}":
            return source.split(" ", 1)[0]
    return None


def _release() -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return tuple(map(int, found.groups())) if found else (0,)


DIRECTORY_MODE: Final = 0o700
"""The mode of a new directory; an existing one keeps its mode."""

SMALL_FILE_BYTES: Final = 64 * 1024
"""How much one system call reads of a file that is read whole."""


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
        follow_links: bool = False,
    ) -> PosixFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create and (exclusive or preallocate_bytes):
            try:
                number, status = open_regular(path, flags | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                if exclusive:
                    raise
            else:
                file = PosixFile(path, number, status)
                if preallocate_bytes:
                    os.ftruncate(number, preallocate_bytes)
                    file.is_preallocated = True
                return file
        flags |= os.O_CREAT if create else 0
        return PosixFile(path, *open_regular(path, flags, follow_links=follow_links))

    def open_index(
        self, path: Path, size_bytes: int | None = None, *, read_only: bool = False
    ) -> PosixIndexFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        with contextlib.suppress(FileNotFoundError):
            number, status = open_regular(path, flags)
            return PosixIndexFile(path, number, status.st_size, is_new=False)
        if read_only or size_bytes is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        number, _ = open_regular(path, flags | os.O_CREAT | os.O_EXCL)
        file = PosixIndexFile(path, number, 0, is_new=True)
        try:
            file.resize(size_bytes)
        except OSError:
            os.unlink(path)  # or the next start would find an empty one
            raise
        return file

    def exists(self, path: Path) -> bool:
        return _mode(path) != 0

    def is_directory(self, path: Path) -> bool:
        return stat.S_ISDIR(_mode(path))

    def real_directory(self, path: Path) -> Path | None:
        return path.resolve() if path.is_dir() else None

    def is_misplaced(self, path: Path) -> bool:
        mode = _mode(path)
        return mode != 0 and not stat.S_ISREG(mode)

    def size_bytes(self, path: Path) -> int:
        return os.stat(path, follow_symlinks=False).st_size

    def space(self, path: Path) -> Space:
        found = os.statvfs(path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def modified_ms(self, path: Path) -> int:
        return os.stat(path, follow_symlinks=False).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2, follow_symlinks=False)

    def read_bytes(self, path: Path, *, follow_links: bool = False) -> bytes:
        # Fewer system calls than `Path.read_bytes`: a start reads several small files of each log.
        number, status = open_regular(path, os.O_RDONLY, follow_links=follow_links)
        try:
            if status.st_size > MAX_SMALL_FILE_BYTES:
                what = f"it has {status.st_size} bytes; at most {MAX_SMALL_FILE_BYTES} are read"
                raise OSError(errno.EFBIG, what, str(path))
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
            return sorted(
                DirectoryEntry(
                    entry.name,
                    entry.is_dir(follow_symlinks=False),
                    entry.is_file(follow_symlinks=False),
                )
                for entry in entries
            )

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        path.mkdir(DIRECTORY_MODE, parents=parents, exist_ok=True)

    def open_directory(self, path: Path) -> PosixFile:
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        return PosixFile(path, number, os.fstat(number))

    def open_file_system(self, path: Path) -> PosixFileSystemHandle | None:
        return PosixFileSystemHandle(path) if reports_failed_writes(path) else None

    def sync_directory(self, path: Path) -> None:
        with self.open_directory(path) as directory:
            directory.sync_all()

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        path.unlink(missing_ok=missing_ok)

    def remove_tree(self, path: Path) -> None:
        if not path.is_symlink():
            shutil.rmtree(path)
            return
        if path.is_dir():  # what lies there beside a partition's files is somebody's
            for name in filter(names.is_of_a_log, os.listdir(path)):
                (path / name).unlink()
        path.unlink()

    def lock(self, path: Path) -> HeldLock:
        return PosixLock(path)


def _mode(path: Path) -> int:
    """Return 0 if the path does not exist; `os.path` would hide all other errors too."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.stat(path, follow_symlinks=False).st_mode
    return 0
