"""The offset of a stream as Spark keeps it in the checkpoint, and the trap it closes.

Spark asks a Python source twice for its initial offset in the first micro-batch, stores only the
*end* of a micro-batch, and computes the initial offset anew when a first micro-batch is repeated
after a crash. With a beginning that moves (`latest`, or `earliest` under retention) records between
the two answers would vanish. So every offset says where the stream began, partition by partition,
and the first range of a partition starts where the *end* offset says, which lies in Spark's
write-ahead log before anything runs. `KafkaSourceInitialOffsetWriter` solves the same for Kafka's
source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.positions import TopicPartition
from pyspark_tidelog.source.splits import Split

VERSION: Final = 1

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a stream has come (exclusive), where it began, and in which logs."""

    offsets: Offsets
    initial: Offsets
    topic_ids: Mapping[str, str]

    @classmethod
    def beginning_at(cls, offsets: Offsets, topic_ids: Mapping[str, str]) -> Self:
        """Return the offset of a stream that has read nothing yet."""
        return cls(offsets, offsets, topic_ids)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` made; raises JobError for a checkpoint of another source."""
        try:
            if document["version"] != VERSION:
                raise JobError(
                    f"the checkpoint has offsets of version {document['version']!r}, this source "
                    f"writes version {VERSION}: read it with the package that wrote it"
                )
            return cls(
                _unfold(document["offsets"]), _unfold(document["initial"]), document["topic_ids"]
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise JobError(
                "the checkpoint was written by another source: choose a new checkpoint folder"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores; equal offsets are equal as text, for Spark compares texts."""
        return {
            "version": VERSION,
            "offsets": _fold(self.offsets),
            "initial": _fold(self.initial),
            "topic_ids": dict(sorted(self.topic_ids.items())),
        }


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[Split]:
    """Return the offsets that the micro-batch from `start` to `end` consists of, one range per log.

    Depends on `end` alone where a log is read for the first time, see above: `start` may then have
    been computed anew, and differ from what it was when the micro-batch was planned.
    """
    is_first = start.offsets == start.initial
    ranges: list[Split] = []
    for log, end_offset in sorted(end.offsets.items()):
        topic_id = end.topic_ids.get(log.topic, "")
        is_new = log not in start.offsets or start.topic_ids.get(log.topic, "") != topic_id
        begin = end.initial[log] if is_first or is_new else start.offsets[log]
        if begin < end_offset:
            ranges.append(Split(log.topic, log.partition, begin, end_offset, topic_id))
    return ranges


def _fold(offsets: Offsets) -> dict[str, dict[str, int]]:
    folded: dict[str, dict[str, int]] = {}
    for log, offset in sorted(offsets.items()):
        folded.setdefault(log.topic, {})[str(log.partition)] = offset
    return folded


def _unfold(folded: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in folded.items()
        for partition, offset in partitions.items()
    }
