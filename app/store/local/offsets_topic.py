"""The topic `__consumer_offsets` in this process: its logs, and which of them is a group's."""

from __future__ import annotations

import contextlib
from typing import Final

from app.store.local.group_records import partition_of_group
from engine.errors import PartitionNotFound
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.types import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"

CONFIGURATION: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "4194304",
}
"""Kafka's `GroupCoordinatorConfig.offsetTopicConfigs`, with smaller segments than its 100 MiB.

The active segment is never compacted, and each start reads all of it: 4 MiB have some 45,000
commits, which take less than a second."""


class OffsetsTopic:
    """The logs of the topic, by partition; an adopted directory has only some of them."""

    def __init__(self, manager: LogManager, *, partitions: int) -> None:
        self._manager = manager
        self._partitions = partitions
        self.logs: dict[int, Log] = {}
        self.is_made = False
        """Whether the topic exists and is compacted, so that offsets can be stored."""

    def find(self) -> None:
        """Use the topic if it exists."""
        topic = self._manager.topics().get(OFFSETS_TOPIC)
        if topic is None:
            return
        self.logs = {
            log.topic_partition.partition: log
            for log in sorted(self._manager.logs(), key=lambda log: log.topic_partition)
            if log.topic_partition.topic == OFFSETS_TOPIC
        }
        self.is_made = "cleanup.policy" in topic.overrides

    def make(self) -> None:
        """Create the topic, or enable compaction of a broker's; for a worker thread.

        It gets the configuration that every broker gives it. Raises what `create_topic` does.
        """
        topic = self._manager.topics().get(OFFSETS_TOPIC)
        if topic is None:
            self._manager.create_topic(
                OFFSETS_TOPIC, self._partitions, CONFIGURATION, internal=True
            )
        elif "cleanup.policy" not in topic.overrides:
            self._manager.update_topic(OFFSETS_TOPIC, CONFIGURATION, internal=True)

    def home_of(self, group: str) -> int:
        """Return the partition of a new group's records: the one that Kafka would use, or another.

        Raises LogOffline if that one's directory is offline: its offsets will be back.
        """
        if not self.logs:
            return 0
        number = partition_of_group(group, self._manager.topic(OFFSETS_TOPIC).partitions)
        if number not in self.logs:
            with contextlib.suppress(PartitionNotFound):
                self._manager.log(TopicPartition(OFFSETS_TOPIC, number))
            number = list(self.logs)[number % len(self.logs)]
        return number
