"""The local side of documents: one file in the first data directory, replaced as a whole.

It has signing secrets. Like every file of the engine it is readable by its owner alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from app.limits.executors import Workers
from app.store.port import Document, Documents
from engine.checkpoint.kafka_files import corrupt
from engine.checkpoint.tidelog_files import read_json, write_json
from engine.errors import CorruptCheckpoint
from engine.fs.names import INGEST_FILE
from engine.fs.port import FileSystem
from engine.manager.manager import LogManager

VERSION: Final = 1

_ADVICE: Final = (
    "it has the ingest profiles with their secrets, the ingest tokens and the secret of delivery "
    "ids: restore it from a backup, or move it away, which forgets them"
)


class LocalDocuments(Documents):
    """The documents of a file. Belongs to the event loop, apart from `load`."""

    def __init__(
        self, directory: Path, *, fs: FileSystem, manager: LogManager, workers: Workers
    ) -> None:
        self._directory = directory
        self._path = directory / INGEST_FILE
        self._fs = fs
        self._manager = manager
        self._workers = workers
        self._documents: Mapping[str, Document] = {}

    def load(self) -> None:
        """Read the file, when the data directory is open; CorruptCheckpoint if it is damaged."""
        self._documents = read_documents(self._fs, self._directory)

    def all(self) -> Mapping[str, Document]:
        return self._documents

    async def change(self, changes: Mapping[str, Document | None]) -> None:
        """Replace the file on a thread for administration, then publish."""
        merged = {**self._documents, **changes}
        documents = {name: one for name, one in merged.items() if one is not None}
        health = self._manager.data_directory(self._directory)

        def replace() -> None:
            with health.trying:
                write_json(self._fs, self._path, VERSION, {"documents": documents})

        await self._workers.administer(replace)
        self._documents = documents

    async def add(self, name: str, document: Document) -> Document:
        if name not in self._documents:
            await self.change({name: document})
        return self._documents[name]

    def damaged(self, name: str, why: str) -> CorruptCheckpoint:
        return _advised(corrupt(self._path, f"{name}: {why}"), self._path)


def read_documents(fs: FileSystem, directory: Path) -> Mapping[str, Document]:
    """Return the documents of a data directory; raises CorruptCheckpoint."""
    path = directory / INGEST_FILE
    try:
        found = read_json(fs, path, VERSION, ("documents",))
        if found is None:
            return {}
        return msgspec.convert(found.get("documents"), dict[str, dict[str, object]])
    except msgspec.ValidationError as error:
        malformed = corrupt(path, "its documents are not JSON objects")
        raise _advised(malformed, path) from error
    except CorruptCheckpoint as error:
        raise _advised(error, path) from error


def _advised(error: CorruptCheckpoint, path: Path) -> CorruptCheckpoint:
    return CorruptCheckpoint(f"{error}; {_ADVICE}", file=str(path))
