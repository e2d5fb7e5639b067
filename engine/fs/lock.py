"""The lock of a data directory, which one process at a time can own."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from engine.errors import DirectoryLocked
from engine.fs.filesystem import FileSystem
from engine.fs.names import LOCK_FILE


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
