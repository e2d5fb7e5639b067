"""Syncs a whole file system with one system call, where Linux reports failed writes."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path
from typing import Final, Self

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
