"""A log that could not be opened, and its error until the next start."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from engine.errors import EngineError, LogOffline
from engine.fs.health import permission_advice
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

_PLACE: Final = ("file", "position", "offset")
"""The facts of an error that locate the problem."""


@dataclass(frozen=True, slots=True)
class OfflineLog:
    """The log, its directory, and the file and problem that kept it from being opened."""

    topic_partition: TopicPartition
    directory: Path
    problem: str
    place: Mapping[str, object]
    """The file, and in a `.log` file the position and offset, if known."""

    @classmethod
    def of(cls, topic_partition: TopicPartition, directory: Path, error: Exception) -> Self:
        """Describe and log the failure. The traceback is dropped: it would keep files open."""
        is_foreseen = isinstance(error, EngineError | OSError)
        _LOG.error("%s is offline: %s", topic_partition, error, exc_info=not is_foreseen)
        place: dict[str, object] = {"file": str(directory)}
        problem = str(error)
        if isinstance(error, EngineError):
            facts = error.facts()
            place |= {name: facts[name] for name in _PLACE if name in facts}
        elif isinstance(error, OSError):
            place["file"] = str(error.filename or directory)
            problem += permission_advice(error)
        else:
            problem = f"{type(error).__name__}: {problem}"
        return cls(topic_partition, directory, problem, place)

    def refusal(self) -> LogOffline:
        """Return the error for reads and appends of the log."""
        topic, partition = self.topic_partition
        return LogOffline(
            f"{self.topic_partition} could not be opened and is offline until restart: "
            f"{self.problem}; stop the service and run `tidelog repair`",
            topic=topic,
            partition=partition,
            directory=str(self.directory.parent),
            **self.place,
        )
