"""A directory as a whole: changes that last, one owner, nothing else where a file belongs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Self

from engine.errors import DirectoryLocked, InvalidDataDirectory
from engine.fs.names import LOCK_FILE, NOT_PARTITIONS, TEMPORARY_SUFFIX
from engine.fs.port import FileSystem


def replace_atomically(fs: FileSystem, target: Path, content: bytes) -> None:
    """Make `target` hold `content`; readers see the old file or the new one.

    That holds after a power cut too; Kafka's `CheckpointFile.write`. Only one thread at a time may
    replace a target. A crash can leave `<target>.tmp`, which the next call overwrites.
    """
    staging = target.with_name(target.name + TEMPORARY_SUFFIX)
    with fs.open_directory(target.parent) as directory:  # first, before any change
        with fs.open(staging, create=True) as file:
            file.truncate(0)  # a crash may have left content
            file.append(content)
            file.sync()
        fs.rename(staging, target)  # after the sync, or a power cut could leave an empty file
        directory.sync_all()  # until this returns, a power cut may undo the rename


def ensure_directory(fs: FileSystem, path: Path) -> None:
    """Create a directory and the parents that it lacks; a power cut removes none of them."""
    missing = [one for one in (path, *path.parents) if not fs.exists(one)]
    if missing:
        fs.make_directory(path, parents=True)
        for one in missing:
            fs.sync_directory(one.parent)


def ensure_empty(fs: FileSystem, directory: Path, besides: Collection[str] = ()) -> None:
    """Raise InvalidDataDirectory if the directory has content that no file system puts there."""
    found = set(fs.list_directory(directory)).difference(NOT_PARTITIONS, besides)
    if found:
        raise InvalidDataDirectory(
            f"{directory} is not empty ({min(found)}): choose a new directory, or move what is "
            "there away",
            name=min(found),
        )


def ensure_files(fs: FileSystem, directory: Path, names: Iterable[str]) -> None:
    """Raise InvalidDataDirectory if one of the names exists and is not a regular file."""
    for name in names:
        path = directory / name
        if fs.is_misplaced(path):
            raise misplaced(path)


def misplaced(path: Path) -> InvalidDataDirectory:
    """Return the error for a path that should be a regular file and is not."""
    return InvalidDataDirectory(
        f"{path} is not a regular file; move it out of the data directory",
        name=path.name,
        file=str(path),
    )


class DirectoryLock:
    """The ownership of one data directory, from construction until `release`.

    It is the lock that Kafka takes, a POSIX record lock on `.lock`, so that tidelog and a broker
    exclude each other. DirectoryLocked if the directory has an owner. A crash releases it.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        try:
            self._held = fs.lock(directory / LOCK_FILE)
        except BlockingIOError as error:
            raise DirectoryLocked(
                f"{directory} is in use by another process ({LOCK_FILE} is locked)",
                directory=str(directory),
            ) from error

    def ensure_held(self) -> None:
        """Raise OSError if the lock file is gone or belongs to another owner."""
        self._held.ensure_held()

    def release(self) -> None:
        """Release the lock and remove its file, if it is ours. May be called again."""
        self._held.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
