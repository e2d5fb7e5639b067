"""Topics, partitions and how far each partition's log reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote


class TopicPartition(NamedTuple):
    """One partition of a topic; `str()` gives the name of its directory in Kafka."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def described(self) -> str:
        """The partition as error messages name it."""
        return f"topic {self.topic}, partition {self.partition}"

    @property
    def path(self) -> str:
        """The partition's path in the HTTP API."""
        return f"/v1/topics/{quote(self.topic)}/partitions/{self.partition}"


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as JSON has them, `{"topic": {"0": 23}}`, sorted."""
    topics: dict[str, dict[str, int]] = {}
    for log, offset in sorted(offsets.items()):
        topics.setdefault(log.topic, {})[str(log.partition)] = offset
    return topics


def by_partition(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Parse the result of `by_topic`."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


class PartitionMarks(NamedTuple):
    """The offsets between which one partition can be read, at one moment."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int | None = None
    """Set for `read_committed` only: no open transaction begins below it."""

    @property
    def end_offset(self) -> int:
        """The exclusive end of what the query may read."""
        return self.high_watermark if self.last_stable_offset is None else self.last_stable_offset


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The topics of a query and the marks of their partitions, at one moment."""

    topic_ids: Mapping[str, str]
    """A topic that is deleted and created again keeps its name but gets a new id."""
    marks: Mapping[TopicPartition, PartitionMarks]
