"""Up to where each log is clean, kept in Kafka's `cleaner-offset-checkpoint`.

A mark holds for one log as it was: if the topic was made again under its name, or the log truncated
or moved to another disk, the mark says nothing and the log counts as dirty from its start. A mark
that is lost costs a round of cleaning and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.offsets import OffsetCheckpoint
from engine.errors import StorageError
from engine.fs import names
from engine.fs.health import DirectoryHealth
from engine.fs.port import FileSystem
from engine.log.log import Log
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)


class _Mark(NamedTuple):
    offset: int
    log_id: str
    directory: Path


class CleanMarks:
    """The marks of the logs that are open; each data directory has a file. Not thread-safe."""

    def __init__(
        self, fs: FileSystem, directories: Iterable[DirectoryHealth], logs: Iterable[Log]
    ) -> None:
        """Take the marks of the files to be those of `logs`, which were just opened."""
        self._files = [
            _MarksFile(OffsetCheckpoint(fs, health.directory / names.CLEANER_CHECKPOINT), health)
            for health in directories
        ]
        written = {file.health.directory: file.written for file in self._files}
        self._marks = {
            log.topic_partition: _mark(log, written[log.directory.parent][log.topic_partition])
            for log in logs
            if log.topic_partition in written[log.directory.parent]
        }

    def cleaned_up_to(self, log: Log) -> int | None:
        """Return where the last cleaning of this log ended, exclusive; None if nobody knows."""
        mark = self._marks.get(log.topic_partition)
        return mark.offset if mark is not None and mark == _mark(log, mark.offset) else None

    def note(self, log: Log, offset: int) -> None:
        """Remember that the log is clean below `offset`; durable with the next `write`."""
        self._marks[log.topic_partition] = _mark(log, offset)

    def write(self, logs: Iterable[Log]) -> None:
        """Forget the marks of all other logs, and write down what is left if it has changed."""
        present = {log.topic_partition: _mark(log, 0) for log in logs}
        self._marks = {
            log: mark
            for log, mark in self._marks.items()
            if present.get(log) == mark._replace(offset=0)
        }
        failure: StorageError | None = None
        for file in self._files:
            here = file.health.directory
            try:
                file.write({k: mark.offset for k, mark in self._marks.items() if mark[2] == here})
            except StorageError as error:
                failure = error
        if failure is not None:
            raise failure


class _MarksFile:
    """The marks in one data directory, as they were last read or written."""

    def __init__(self, checkpoint: OffsetCheckpoint, health: DirectoryHealth) -> None:
        self._checkpoint = checkpoint
        self.health = health
        self.written: dict[TopicPartition, int] = {}
        try:
            with health.reading():
                self.written = checkpoint.read()
        except StorageError as error:
            _LOG.warning("compacted logs count as dirty: %s", error)

    def write(self, offsets: dict[TopicPartition, int]) -> None:
        if offsets != self.written and not self.health.is_offline:
            with self.health.appending():
                self._checkpoint.write(offsets)
            self.written = offsets


def _mark(log: Log, offset: int) -> _Mark:
    return _Mark(offset, log.log_id, log.directory.parent)
