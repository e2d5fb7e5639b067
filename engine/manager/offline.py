"""A log that could not be opened, and what is told of it until the next start."""

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
"""Facts of an error that say where the problem is."""


@dataclass(frozen=True, slots=True)
class OfflineLog:
    """Which log it is, where it lies, and what is wrong with which file."""

    topic_partition: TopicPartition
    directory: Path
    problem: str
    place: Mapping[str, object]
    """The file, and within a `.log` file the position and offset if they are known."""

    @classmethod
    def of(cls, topic_partition: TopicPartition, directory: Path, error: Exception) -> Self:
        """Describe and log the failure; a traceback is not kept: it would keep files open."""
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
        """Return what a read or an append of the log raises."""
        topic, partition = self.topic_partition
        return LogOffline(
            f"{self.topic_partition} could not be opened and is offline until restart: "
            f"{self.problem}; stop the service and run `tidelog repair`",
            topic=topic,
            partition=partition,
            directory=str(self.directory.parent),
            **self.place,
        )
