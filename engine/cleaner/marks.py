"""Up to where each log is clean, kept in Kafka's `cleaner-offset-checkpoint`.

A mark holds for one log as it was: if the topic was made again under its name, or the log
truncated, the mark says nothing and the log counts as dirty from its start. A mark that is lost
costs a round of cleaning and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from engine.checkpoint.offsets import OffsetCheckpoint
from engine.errors import StorageError
from engine.fs.health import DirectoryHealth
from engine.log.log import Log
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)


class _Mark(NamedTuple):
    offset: int
    log_id: str


class CleanMarks:
    """The marks of the logs that are open. Not thread-safe."""

    def __init__(
        self, checkpoint: OffsetCheckpoint, health: DirectoryHealth, logs: Iterable[Log]
    ) -> None:
        """Take the file's marks to be those of `logs`, which were just opened."""
        self._checkpoint = checkpoint
        self._health = health
        try:
            with health.reading():
                self._written = checkpoint.read()
        except StorageError as error:
            _LOG.warning("compacted logs count as dirty: %s", error)
            self._written = {}
        self._marks = {
            log.topic_partition: _Mark(self._written[log.topic_partition], log.log_id)
            for log in logs
            if log.topic_partition in self._written
        }

    def cleaned_up_to(self, log: Log) -> int | None:
        """Return where the last cleaning of this log ended, exclusive; None if nobody knows."""
        mark = self._marks.get(log.topic_partition)
        return mark.offset if mark is not None and mark.log_id == log.log_id else None

    def note(self, log: Log, offset: int) -> None:
        """Remember that the log is clean below `offset`; durable with the next `write`."""
        self._marks[log.topic_partition] = _Mark(offset, log.log_id)

    def write(self, logs: Iterable[Log]) -> None:
        """Forget the marks of all other logs, and write down what is left if it has changed."""
        present = {log.topic_partition: log.log_id for log in logs}
        self._marks = {
            log: mark for log, mark in self._marks.items() if present.get(log) == mark.log_id
        }
        offsets: dict[TopicPartition, int] = {log: mark.offset for log, mark in self._marks.items()}
        if offsets != self._written:
            with self._health.appending():
                self._checkpoint.write(offsets)
            self._written = offsets
