"""Open files and memory maps of the machine, on system calls."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from mmap import ACCESS_READ, ACCESS_WRITE, MADV_RANDOM, mmap
from pathlib import Path
from typing import Any, Final, Self

from engine.fs.port import NotRegularFile
from engine.types import Buffer

BUFFERS_PER_WRITE: Final = 1024
"""How many buffers one system call takes: IOV_MAX of Linux and macOS."""

RESERVE_BYTES: Final = 64 * 1024
"""How much of a sparse map is set aside on the disk at a time: 8,192 entries of an offset index."""

FILE_MODE: Final = 0o600
"""Records and keys are the business of the user who runs the service, whatever the umask is."""

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


def open_regular(path: Path, flags: int, *, follow_links: bool = False) -> tuple[int, int]:
    """Open a regular file; return its descriptor and its size.

    Anything else is refused: a link would lead out of the data directory, and a
    FIFO would have the caller wait for whoever writes to it.
    """
    try:
        number = os.open(
            path, flags | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW), FILE_MODE
        )
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links:
            what = "it is a symbolic link, and those are not followed"
            raise NotRegularFile(errno.ELOOP, what, str(path)) from error
        raise
    status = os.fstat(number)
    if stat.S_ISREG(status.st_mode):
        return number, status.st_size
    os.close(number)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise NotRegularFile(errno.ENXIO, "it is not a regular file", str(path))


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

    __slots__ = ("_descriptor", "_has_lost", "_no_wait", "_syncing", "path", "size_bytes")

    def __init__(self, path: Path, number: int, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
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
        self._sync(_sync_data)

    def sync_all(self) -> None:
        self._sync(os.fsync)

    def forget_cached(self) -> None:
        descriptor = self._descriptor
        self._sync(_sync_data)
        _advise(descriptor.number, 0, 0, _DO_NOT_NEED)

    def _sync(self, call: Callable[[int], None]) -> None:
        """Sync, one thread at a time; the kernel reports a failure to the first one alone."""
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
        """Cut what a failed append left; if that fails too, raise EIO, whatever the reason was.

        The file is not as it was, so no caller may take the error for one that passes.
        """
        try:
            if os.fstat(descriptor.number).st_size > position:
                os.ftruncate(descriptor.number, position)
        except OSError as error:
            raise OSError(errno.EIO, f"a failed append stays: {error}", str(self.path)) from error


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
