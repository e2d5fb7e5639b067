"""Where a job leaves its identity: its checkpoint, and each table that it fills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.tables.durable_files import locked, replace_text

IDENTITY_NAME: Final = "_tidelog-job.json"
"""Readers of a table skip names that begin with an underscore."""

LOCK_NAME: Final = "_tidelog-job.lock"


class Place(Protocol):
    """Holds the identity of one job, as text. `str` returns its name for people."""

    def claim(self) -> AbstractContextManager[None]:
        """Create it if needed, and keep other jobs out; raise JobError if one is running."""

    def load(self) -> str | None:
        """Return the identity, None if there is none; raise JobError if it cannot be read."""

    def store(self, text: str) -> None:
        """Store the identity durably."""

    def has_data(self) -> bool:
        """Whether there is anything that a reader would see."""


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A folder of this machine, or one that is mounted."""

    folder: Path

    def __str__(self) -> str:
        return str(self.folder)

    @contextmanager
    def claim(self) -> Iterator[None]:
        lock = self.folder / LOCK_NAME
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.open("ab").close()
        except OSError as error:
            raise JobError(f"{self.folder} cannot be written: {error.strerror}") from error
        with locked(lock) as is_free:
            if not is_free:
                raise JobError(f"another job or a compaction is running on {self.folder}")
            yield

    def load(self) -> str | None:
        path = self.folder / IDENTITY_NAME
        try:
            return path.read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JobError(f"{path} cannot be read: {error.strerror}") from error

    def store(self, text: str) -> None:
        replace_text(self.folder / IDENTITY_NAME, text)

    def has_data(self) -> bool:
        return any(not entry.name.startswith(("_", ".")) for entry in self.folder.iterdir())
