"""The machine's file system.

This module and its neighbours `posix_…` are the only ones of the engine that
call the operating system.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Final

from engine.fs import names
from engine.fs.port import (
    MAX_SMALL_FILE_BYTES,
    DirectoryEntry,
    File,
    FileSystem,
    HeldLock,
    IndexFile,
    Space,
)
from engine.fs.posix_file_system import PosixFileSystemHandle, reports_failed_writes
from engine.fs.posix_files import PosixFile, PosixIndexFile, open_regular
from engine.fs.posix_lock import PosixLock

__all__ = ["File", "FileSystem", "HeldLock", "IndexFile", "PosixFile", "PosixFileSystem"]

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
