"""Cuts the offset ranges of a query into Spark tasks.

Without `minPartitions` every partition is one task, as in Spark's Kafka source
(`OffsetRangeCalculator`). With it the service cuts larger ranges between batches into parts of
about equal bytes (`planSplits`); ranges that it no longer knows are cut by offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final
from urllib.parse import quote

from pyspark.sql.datasource import InputPartition

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.documents import Splits
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.source.options import Options

# The topic is gone or was truncated meanwhile, or the service does not make such a plan.
_NOT_PLANNED: Final = frozenset({404, 409, 410, 413, 416, 422})


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """The offsets that one task reads; pickled to the executor."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    """Exclusive."""
    topic_id: str = ""

    @property
    def log(self) -> TopicPartition:
        """The partition of the topic."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets_count(self) -> int:
        """The number of offsets inside; not all of them need to hold a record."""
        return self.end_offset - self.start_offset


def plan_tasks(
    client: ServiceClient, ranges: Iterable[OffsetRange], options: Options
) -> list[OffsetRange]:
    """Return tasks that together cover the ranges, about as many as the options ask for."""
    filled = [one for one in ranges if one.offsets_count > 0]
    if options.min_partitions > len(filled):
        filled = _balanced(client, filled, options)
    return cut_by_offsets(filled, max_records=options.max_records_per_partition)


def cut_by_offsets(
    ranges: Iterable[OffsetRange], *, min_partitions: int = 0, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut the ranges into about `min_partitions` tasks, at least one for each range that has any.

    No task has more than `max_records` offsets.
    """
    filled = [one for one in ranges if one.offsets_count > 0]
    total = sum(one.offsets_count for one in filled)
    tasks: list[OffsetRange] = []
    for one in filled:
        share = round(one.offsets_count / total * min_partitions)
        parts = min(max(share, 1), one.offsets_count) if min_partitions > len(filled) else 1
        if max_records is not None:
            parts = max(parts, -(-one.offsets_count // max_records))
        cuts = [one.start_offset + one.offsets_count * n // parts for n in range(parts + 1)]
        tasks += [
            OffsetRange(one.topic, one.partition, start, end, one.topic_id)
            for start, end in pairwise(cuts)
        ]
    return tasks


def _balanced(
    client: ServiceClient, ranges: Sequence[OffsetRange], options: Options
) -> list[OffsetRange]:
    """Share the tasks out to the topics by offsets, and within a topic by bytes."""
    total = sum(one.offsets_count for one in ranges)
    tasks: list[OffsetRange] = []
    for topic, logs in groupby(ranges, key=lambda one: one.topic):
        own = list(logs)
        count = sum(one.offsets_count for one in own)
        share = max(len(own), round(count / total * options.min_partitions))
        if share > len(own):
            plan = _planned(client, topic, own, share, options.isolation)
            own = plan or cut_by_offsets(own, min_partitions=share)
        tasks += own
    return tasks


def _planned(
    client: ServiceClient, topic: str, ranges: Sequence[OffsetRange], share: int, isolation: str
) -> list[OffsetRange]:
    """Return the service's plan, or an empty list if it has none that covers these ranges."""
    by_partition = {one.partition: one for one in ranges}
    wanted = {
        "start": {str(one.partition): one.start_offset for one in ranges},
        "end": {str(one.partition): one.end_offset for one in ranges},
        "partitions": sorted(by_partition),
        "isolation": isolation,
        "min_splits": share,
    }
    answer = client.post(f"/v1/topics/{quote(topic)}/splits", wanted, expected=_NOT_PLANNED)
    if answer.status != 200:
        return []
    tasks = [
        OffsetRange(topic, part.partition, part.start_offset, part.end_offset, known.topic_id)
        for part in answer.to(Splits).splits
        if (known := by_partition.get(part.partition)) is not None
    ]
    return tasks if all(_is_covered(one, tasks) for one in ranges) else []


def _is_covered(wanted: OffsetRange, tasks: Iterable[OffsetRange]) -> bool:
    """Whether the tasks read each offset of the range exactly once."""
    own = [task for task in tasks if task.partition == wanted.partition]
    return (
        bool(own)
        and own[0].start_offset == wanted.start_offset
        and own[-1].end_offset == wanted.end_offset
        and all(task.offsets_count > 0 for task in own)
        and all(task.end_offset == after.start_offset for task, after in pairwise(own))
    )
