"""The offset of a stream, as Spark stores it in the checkpoint.

Spark asks a Python source twice for its initial offset, stores only the *end* of a micro-batch, and
asks again when the first micro-batch is repeated after a crash. If the start had moved meanwhile
(`latest`, or `earliest` under retention), records would be lost. So every offset also holds where
the stream began in each partition, and the first range of a partition starts there: the end offset
is in Spark's write-ahead log before the micro-batch runs. (`KafkaSourceInitialOffsetWriter` solves
the same problem for Spark's Kafka source.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.partitions import TopicPartition, by_partition, by_topic
from pyspark_tidelog.source.tasks import OffsetRange

VERSION: Final = 1

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end (exclusive) and the start of a stream in each partition, and its topics' ids."""

    offsets: Offsets
    initial: Offsets
    topic_ids: Mapping[str, str]

    @classmethod
    def beginning_at(cls, offsets: Offsets, topic_ids: Mapping[str, str]) -> Self:
        """Return the offset of a stream that has read nothing yet."""
        return cls(offsets, offsets, topic_ids)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Parse the result of `to_json`; raise JobError for a checkpoint of another source."""
        try:
            if document["version"] != VERSION:
                raise JobError(
                    f"the checkpoint has offsets of version {document['version']!r}, this source "
                    f"writes version {VERSION}: read it with the package that wrote it"
                )
            return cls(
                by_partition(document["offsets"]),
                by_partition(document["initial"]),
                document["topic_ids"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise JobError(
                "the checkpoint was written by another source: choose a new checkpoint folder"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores. Keys are sorted, because Spark compares offsets as text."""
        return {
            "version": VERSION,
            "offsets": by_topic(self.offsets),
            "initial": by_topic(self.initial),
            "topic_ids": dict(sorted(self.topic_ids.items())),
        }


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """Return the ranges of the micro-batch from `start` to `end`, one per partition.

    The first range of a partition depends on `end` alone: when a micro-batch is repeated, `start`
    may differ from what it was when the micro-batch was planned.
    """
    is_first = start.offsets == start.initial
    ranges: list[OffsetRange] = []
    for log, end_offset in sorted(end.offsets.items()):
        topic_id = end.topic_ids.get(log.topic, "")
        is_new = log not in start.offsets or start.topic_ids.get(log.topic, "") != topic_id
        begin = end.initial[log] if is_first or is_new else start.offsets[log]
        if begin < end_offset:
            ranges.append(OffsetRange(log.topic, log.partition, begin, end_offset, topic_id))
    return ranges
