"""Where a job leaves its identity: its checkpoint, and each table that it fills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.tables.durable_files import ensure_folder, locked, replace_text
from pyspark_tidelog.tables.leases import HOLDER_NAME, Claim, Held, Holder, leased
from pyspark_tidelog.tables.storage import Storage

IDENTITY_NAME: Final = "_tidelog-job.json"
"""Readers of a table skip names that begin with an underscore."""

LOCK_NAME: Final = "_tidelog-job.lock"


class Place(Protocol):
    """Holds the identity of one job, as text. `str` returns its name for people."""

    def claim(self) -> AbstractContextManager[Claim]:
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
    def claim(self) -> Iterator[Claim]:
        lock = self.folder / LOCK_NAME
        try:
            ensure_folder(self.folder)
            lock.open("ab").close()
        except OSError as error:
            raise JobError(f"{self.folder} cannot be written: {error.strerror}") from error
        with locked(lock) as is_free:
            last = self._holder()
            if not is_free:
                named = "" if last is None or last.is_gone else f": {last}"
                raise JobError(f"another job or a compaction is running on {self.folder}{named}")
            holder = Holder.after(last)
            self._note(holder)
            try:
                yield Held(holder.run)
            finally:
                with suppress(OSError):  # the next holder finds a dead process
                    self._note(holder.released())

    def _holder(self) -> Holder | None:
        try:
            data = (self.folder / HOLDER_NAME).read_bytes()
        except FileNotFoundError:
            return None
        return Holder.parse(data, str(self))

    def _note(self, holder: Holder) -> None:
        replace_text(self.folder / HOLDER_NAME, holder.encode().decode())

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


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A folder of an object store."""

    storage: Storage

    def __str__(self) -> str:
        return self.storage.url

    def claim(self) -> AbstractContextManager[Claim]:
        return leased(self.storage)

    def load(self) -> str | None:
        data = self.storage.load(IDENTITY_NAME)
        return None if data is None else data.decode()

    def store(self, text: str) -> None:
        if self.load() is not None:
            self.storage.replace(IDENTITY_NAME, text.encode())
        elif not self.storage.create(IDENTITY_NAME, text.encode()):
            raise JobError(f"another job has just claimed {self}: choose another table")

    def has_data(self) -> bool:
        folders, objects = self.storage.names()
        return "_delta_log" in folders or any(not n.startswith(("_", ".")) for n in objects)
