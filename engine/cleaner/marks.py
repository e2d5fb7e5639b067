"""The offset up to which each log is clean, kept in Kafka's `cleaner-offset-checkpoint`.

A mark is valid for one state of a log. If the topic was created again, or the log was truncated or
moved to another disk, the log counts as dirty from its start, and `Checkpoints` removes the line so
that the next start does not use it. A lost mark costs one round of cleaning and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from engine.cleaner.selection import first_dirty_offset
from engine.errors import Overloaded, StorageError
from engine.fs.health import DirectoryHealth
from engine.log.log import Log
from engine.manager.checkpoints import Checkpoints
from engine.types import TopicPartition


class _Mark(NamedTuple):
    offset: int
    log_id: str
    directory: Path


class CleanMarks:
    """The marks of the open logs; each data directory has a file. Not thread-safe."""

    def __init__(self, files: Mapping[DirectoryHealth, Checkpoints], logs: Iterable[Log]) -> None:
        """Use the marks in the files for `logs`, which were just opened.

        If a mark lies above the last stable offset, the log was truncated: it counts as dirty from
        its start, even after it has grown past the mark again.
        """
        self._files = files
        self._marks: dict[TopicPartition, _Mark] = {}
        for log in logs:
            offset = files[log.durability.health].clean_marks.get(log.topic_partition)
            if offset is not None:
                self.note(log, first_dirty_offset(log, offset))

    def cleaned_up_to(self, log: Log) -> int | None:
        """Return where the last cleaning of this log ended, exclusive; None if unknown."""
        mark = self._marks.get(log.topic_partition)
        return mark.offset if mark is not None and mark == _mark(log, mark.offset) else None

    def note(self, log: Log, offset: int) -> None:
        """Remember that the log is clean below `offset`; durable with the next `write`."""
        self._marks[log.topic_partition] = _mark(log, offset)

    def write(self, logs: Callable[[], Iterable[Log]]) -> None:
        """Drop the marks of all other logs, and write the rest if it has changed."""
        failure: Overloaded | StorageError | None = None
        for health, file in self._files.items():
            if health.is_offline:
                continue
            try:
                file.write_clean_marks(partial(self._current, health.directory, logs))
            except (Overloaded, StorageError) as error:
                failure = error
        if failure is not None:
            raise failure

    def _current(self, here: Path, logs: Callable[[], Iterable[Log]]) -> dict[TopicPartition, int]:
        """Return the marks of one directory, without those of logs that no longer exist."""
        present = {log.topic_partition: _mark(log, 0) for log in logs()}
        self._marks = {
            log: mark
            for log, mark in self._marks.items()
            if present.get(log) == mark._replace(offset=0)
        }
        return {log: mark.offset for log, mark in self._marks.items() if mark.directory == here}


def _mark(log: Log, offset: int) -> _Mark:
    return _Mark(offset, log.reader.log_id, log.directory.parent)
