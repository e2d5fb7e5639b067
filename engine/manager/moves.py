"""The moves that were asked for and are not over: directories, so that a restart forgets none.

Each is a directory `…-future` where the partition is to lie, with the id of its topic in it. It is
made before whoever asks is answered, and goes when the move is over or cannot be.
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
    """At most one for each partition. Whoever uses it holds the admin lock of the manager."""

    def __init__(self) -> None:
        self._wanted: dict[TopicPartition, tuple[DataDirectory, Path]] = {}

    def adopt(self, found: Mapping[TopicPartition, tuple[DataDirectory, Path]]) -> None:
        """Take over what a start has found."""
        self._wanted = dict(found)

    def targets(self) -> dict[TopicPartition, Path]:
        """Return where each partition is to lie."""
        return {log: target.path for log, (target, _) in self._wanted.items()}

    def want(self, topic: Topic, log: TopicPartition, target: DataDirectory) -> Path:
        """Return the directory of the move there, made durably unless it is there already.

        A move to anywhere else is wanted no more. Overloaded, StorageError.
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
        """Note that the move is over; its directory has another name, or is gone."""
        self._wanted.pop(log, None)

    def give_up(self, logs: Iterable[TopicPartition]) -> None:
        """Remove the directories of moves that are not under way; on a broken disk they stay."""
        for log in logs:
            if log in self._wanted:
                target, path = self._wanted.pop(log)
                with contextlib.suppress(StorageOffline):  # a start without an original leaves it
                    target.deletion.discard(path)
