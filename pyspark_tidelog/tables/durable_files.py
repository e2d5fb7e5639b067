"""Durable files: fsync, atomic replacement, locks, and the exchange of two folders."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from pyspark_tidelog.errors import JobError

_CURRENT_FOLDER: Final = -100  # AT_FDCWD: paths count from the working directory
_EXCHANGE: Final = 2  # RENAME_EXCHANGE
_CANNOT: Final = (errno.EINVAL, errno.ENOSYS, errno.EXDEV)


def sync_file(file: Path) -> None:
    """Sync the contents of a file."""
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def ensure_folder(folder: Path) -> None:
    """Create a folder and the parents that it lacks; a power cut removes none of them."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def sync_tree(folder: Path) -> None:
    """Sync everything below a folder, then the folder itself.

    What is removed meanwhile is passed over: other writers have files for a moment only.
    """
    for entry in folder.iterdir():
        if entry.is_dir():
            sync_tree(entry)
        else:
            with suppress(FileNotFoundError):
                sync_file(entry)
    sync_folder(folder)


def replace_text(path: Path, text: str) -> None:
    """Replace a file atomically and durably."""
    staging = path.with_name(path.name + ".tmp")
    _write(staging, text.encode())
    staging.replace(path)
    sync_folder(path.parent)


def create_file(path: Path, data: bytes) -> bool:
    """Create a file durably unless there is one, in one step; return whether it was created."""
    staging = path.with_name(f".{path.name}.{uuid4()}.tmp")
    try:
        _write(staging, data)
        os.link(staging, path)
    except FileExistsError:
        return False
    finally:
        staging.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Lock a file if it is free, and yield whether it was; the lock ends with the process."""
    with path.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def exchange_folders(one: Path, other: Path) -> None:
    """Exchange two folders in one step, so that readers always find one of them.

    Raises JobError if the system or the file system cannot do that.
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
            f"two folders in {one.parent} cannot be exchanged in one step: this needs Linux and a "
            f"local file system; the lake is unchanged"
        )
    raise OSError(number, os.strerror(number), str(one))
