"""A file lock that excludes other processes and a second owner in this one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Final

from engine.fs.posix_files import open_regular


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
