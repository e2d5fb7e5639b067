"""What makes files survive a power cut, and how one folder takes another's place in one step."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark_tidelog.errors import JobError

_CURRENT_FOLDER: Final = -100  # AT_FDCWD: paths count from the working directory
_EXCHANGE: Final = 2  # RENAME_EXCHANGE
_CANNOT: Final = (errno.EINVAL, errno.ENOSYS, errno.EXDEV)


def sync_file(file: Path) -> None:
    """Put the contents of a file on disk."""
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


def sync_folder(folder: Path) -> None:
    """Make names that were added to or removed from the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Put everything below a folder on disk, the folder's own names last."""
    for entry in folder.iterdir():
        if entry.is_dir():
            sync_tree(entry)
        else:
            sync_file(entry)
    sync_folder(folder)


def replace_text(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, after a power cut too."""
    staging = path.with_name(path.name + ".tmp")
    with staging.open("w") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    staging.replace(path)
    sync_folder(path.parent)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Yield whether the lock was free, and hold it then, at most as long as the process lives."""
    with path.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def exchange_folders(one: Path, other: Path) -> None:
    """Let two folders change places: whoever looks sees the one or the other, never neither.

    Raises JobError where the system has no such step.
    """
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    number = errno.ENOSYS
    if exchange is not None:
        done = exchange(
            _CURRENT_FOLDER, os.fsencode(one), _CURRENT_FOLDER, os.fsencode(other), _EXCHANGE
        )
        if done == 0:
            return
        number = ctypes.get_errno()
    if number in _CANNOT:
        raise JobError(
            f"{one.parent} lies where two folders cannot change places in one step: that takes "
            f"Linux and a local file system; the lake is as it was"
        )
    raise OSError(number, os.strerror(number), str(one))
