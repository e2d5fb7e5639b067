"""Open files, with POSIX system calls."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from engine.fs.port import NotRegularFile
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
