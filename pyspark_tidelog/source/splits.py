"""How the offsets of a query are cut into tasks.

Mirrors `OffsetRangeCalculator` of Spark's Kafka source: without `minPartitions` a task per
partition of a topic, with it the larger ranges are cut further, in proportion to their size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from pyspark_tidelog.positions import TopicPartition
from pyspark_tidelog.records.decode import OffsetRange


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads; all it needs to know travels inside, for it runs in another process."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    topic_id: str = ""

    @property
    def range(self) -> OffsetRange:
        """The offsets wanted."""
        return OffsetRange(
            TopicPartition(self.topic, self.partition), self.start_offset, self.end_offset
        )

    @property
    def offsets_count(self) -> int:
        """How many offsets lie inside; not all of them need to hold a record."""
        return self.end_offset - self.start_offset


def plan_splits(
    ranges: Iterable[Split], *, min_partitions: int = 0, max_records: int | None = None
) -> list[Split]:
    """Cut the ranges that are not empty into about `min_partitions` tasks, at least one each.

    None has more than `max_records` offsets. Offsets are taken for alike; `planning` knows bytes.
    """
    filled = [split for split in ranges if split.offsets_count > 0]
    total = sum(split.offsets_count for split in filled)
    planned: list[Split] = []
    for split in filled:
        share = round(split.offsets_count / total * min_partitions)
        parts = min(max(share, 1), split.offsets_count) if min_partitions > len(filled) else 1
        if max_records is not None:
            parts = max(parts, -(-split.offsets_count // max_records))
        planned.extend(_cut(split, parts))
    return planned


def _cut(split: Split, parts: int) -> Iterable[Split]:
    count = split.offsets_count
    cuts = [split.start_offset + count * index // parts for index in range(parts + 1)]
    for start, end in pairwise(cuts):
        yield Split(split.topic, split.partition, start, end, split.topic_id)
