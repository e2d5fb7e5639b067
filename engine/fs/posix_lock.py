"""A lock on a file that other processes respect, and that this one cannot take twice."""

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
            os.close(number)  # its last owner removed the file between our two calls: try again


def _identity(status: os.stat_result) -> tuple[int, int]:
    """What tells one file from another, whatever its name."""
    return status.st_dev, status.st_ino
