"""The marker that allows the next start to skip recovery; Kafka's `CleanShutdownFileHandler`.

`.kafka_cleanshutdown` exists only between a clean stop and the next start, which deletes it before
it opens the first log: a crash while loading must count as unclean.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from engine.fs.atomic import replace_atomically
from engine.fs.filesystem import FileSystem
from engine.fs.names import CLEAN_SHUTDOWN_FILE

VERSION: Final = 0
NO_BROKER_EPOCH: Final = -1


class CleanShutdownMarker:
    """The marker of one data directory. Only its existence matters; its content is Kafka's."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self.path = directory / CLEAN_SHUTDOWN_FILE
        self._fs = fs

    def exists(self) -> bool:
        """Whether the directory was stopped cleanly; read it once, before `delete`."""
        return self._fs.exists(self.path)

    def write(self) -> None:
        """Record durably that every log was flushed and closed without an error."""
        content = {"version": VERSION, "brokerEpoch": NO_BROKER_EPOCH}
        replace_atomically(self._fs, self.path, json.dumps(content, separators=(",", ":")).encode())

    def delete(self) -> None:
        """Remove it durably: a power cut must not restore it in a directory in use."""
        self._fs.remove(self.path, missing_ok=True)
        self._fs.sync_directory(self.path.parent)
