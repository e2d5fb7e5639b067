"""The look-ups of a `LogManager`, which take no lock.

Topics and logs are immutable maps that changes replace.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from engine.errors import PartitionNotFound, StorageOffline, TopicNotFound
from engine.fs.health import DirectoryHealth
from engine.log.log import Log
from engine.manager.checkpoints import Checkpoints
from engine.manager.directories import Directories
from engine.manager.offline import OfflineLog
from engine.manager.topics import Topic
from engine.types import TopicPartition


class Catalog:
    """The present topics, logs and data directories."""

    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self._topics: Mapping[str, Topic] = MappingProxyType({})
        self._logs: Mapping[TopicPartition, Log] = MappingProxyType({})
        self._offline: Mapping[TopicPartition, OfflineLog] = MappingProxyType({})

    def _publish(self, topics: Mapping[str, Topic], logs: Mapping[TopicPartition, Log]) -> None:
        """Replace the maps; logs first, so that every visible topic has its logs."""
        self._logs = MappingProxyType(dict(logs))
        self._topics = MappingProxyType(dict(topics))

    @property
    def health(self) -> DirectoryHealth:
        """The health of the first online data directory; offline only if all directories are."""
        return self._directories.health

    @property
    def directories(self) -> tuple[DirectoryHealth, ...]:
        """The health of every data directory."""
        return tuple(directory.health for directory in self._directories.all)

    @property
    def checkpoints(self) -> Mapping[DirectoryHealth, Checkpoints]:
        """The checkpoints of every data directory."""
        return {directory.health: directory.checkpoints for directory in self._directories.all}

    def data_directory(self, path: Path) -> DirectoryHealth:
        """Return the health of the data directory at this path; InvalidRequestValue if unknown."""
        return self._directories.at(path).health

    def topics(self) -> Mapping[str, Topic]:
        """Return an immutable snapshot of all topics by name, internal ones included."""
        return self._topics

    def topic(self, name: str) -> Topic:
        """Return one topic; TopicNotFound."""
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name!r} does not exist", topic=name)
        return topic

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return one log; TopicNotFound or PartitionNotFound.

        LogOffline if it could not be opened, StorageOffline if it may be in an offline directory.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            topic = self.topic(topic_partition.topic)
            if topic_partition in self._offline:
                raise self._offline[topic_partition].refusal()
            if self._directories.offline and 0 <= topic_partition.partition < topic.partitions:
                directory = self._directories.offline[0]
                raise StorageOffline(
                    f"{topic_partition}: {directory.health.offline_error()}",
                    directory=str(directory.path),
                )
            raise PartitionNotFound(
                f"topic {topic.name!r} has no partition {topic_partition.partition}",
                topic=topic.name,
                partition=topic_partition.partition,
                partitions=topic.partitions,
            )
        return log

    @property
    def offline_logs(self) -> tuple[OfflineLog, ...]:
        """The logs that could not be opened at the last start and still belong to a topic."""
        return tuple(one for _, one in sorted(self._offline.items()))

    def _keep_offline(self, offline: Mapping[TopicPartition, OfflineLog]) -> None:
        """Record which logs are offline; their lines in the checkpoints are kept."""
        self._offline = MappingProxyType(dict(offline))
        for directory in self._directories.all:
            directory.checkpoints.keep(
                log for log, one in offline.items() if one.directory.parent == directory.path
            )

    def logs(self) -> tuple[Log, ...]:
        """Return all present logs, those of internal topics included."""
        return tuple(self._logs.values())

    def logs_of(self, topic: str) -> list[Log]:
        """Return the open logs of one topic."""
        return [log for key, log in self._logs.items() if key.topic == topic]
