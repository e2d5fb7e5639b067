"""The unfinished moves, as directories, so that they survive a restart.

Each is a directory `…-future` in the target data directory, with the topic id in it. It is created
before the request is answered, and removed when the move ends or fails.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.errors import Overloaded, StorageFull, StorageOffline
from engine.fs import names
from engine.manager.directory import DataDirectory
from engine.manager.topics import Topic
from engine.types import TopicPartition


class WantedMoves:
    """At most one move for each partition. All methods need the manager's admin lock."""

    def __init__(self) -> None:
        self._wanted: dict[TopicPartition, tuple[DataDirectory, Path]] = {}

    def adopt(self, found: Mapping[TopicPartition, tuple[DataDirectory, Path]]) -> None:
        """Take over the moves that a start has found."""
        self._wanted = dict(found)

    def targets(self) -> dict[TopicPartition, Path]:
        """Return the target directory of each partition."""
        return {log: target.path for log, (target, _) in self._wanted.items()}

    def want(self, topic: Topic, log: TopicPartition, target: DataDirectory) -> Path:
        """Return the directory of a move, created durably unless it exists.

        It replaces a move to another target. Raises Overloaded, StorageError.
        """
        known, path = self._wanted.get(log, (None, Path()))
        if known is target:
            return path
        self.give_up([log])
        path = target.path / names.future_directory_name(log, uuid.uuid4().hex)
        try:
            target.partitions.make_directory(topic, path)
        except (Overloaded, StorageFull):
            target.deletion.discard(path)
            raise
        target.sync()
        self._wanted[log] = target, path
        return path

    def end(self, log: TopicPartition) -> None:
        """Note that the move has ended; its directory was renamed or removed."""
        self._wanted.pop(log, None)

    def give_up(self, logs: Iterable[TopicPartition]) -> None:
        """Cancel moves that are not running, and remove their directories if the disk works."""
        for log in logs:
            if log in self._wanted:
                target, path = self._wanted.pop(log)
                with contextlib.suppress(StorageOffline):  # without an original a start removes it
                    target.deletion.discard(path)
