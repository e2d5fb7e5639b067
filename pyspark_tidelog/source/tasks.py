"""Cuts the offset ranges of a query into Spark tasks.

Without `minPartitions` every partition is one task, as in Spark's Kafka source
(`OffsetRangeCalculator`), but of many partitions with few records each a task reads several. With
it the service cuts larger ranges between batches into parts of about equal bytes (`planSplits`);
ranges that it no longer knows are cut by offsets.
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


MANY_TASKS: Final = 32
"""Up to so many, each range is a task of its own."""

MIN_TASK_OFFSETS: Final = 1_000
MAX_TASK_OFFSETS: Final = 10_000
"""Of a task that reads several ranges. A task costs some milliseconds, and a file of the lake."""


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """Offsets of one partition that one task reads; pickled to the executor."""

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


@dataclass(frozen=True)
class RangeGroup(InputPartition):
    """Ranges that one task reads, one after the other."""

    ranges: tuple[OffsetRange, ...]


def ranges_of(task: InputPartition) -> Sequence[OffsetRange]:
    """Return what a task reads; nothing for the one task that Spark makes of an empty plan."""
    if isinstance(task, RangeGroup):
        return task.ranges
    return [task] if isinstance(task, OffsetRange) else []


def plan_tasks(
    client: ServiceClient, ranges: Iterable[OffsetRange], options: Options
) -> list[OffsetRange | RangeGroup]:
    """Return tasks that together cover the ranges, about as many as the options ask for."""
    filled = [one for one in ranges if one.offsets_count > 0]
    if options.min_partitions > len(filled):
        filled = _balanced(client, filled, options)
    tasks = cut_by_offsets(filled, max_records=options.max_records_per_partition)
    if options.min_partitions or len(tasks) <= MANY_TASKS:
        return [*tasks]
    return _grouped(tasks, options.max_records_per_partition or MAX_TASK_OFFSETS)


def _grouped(tasks: Sequence[OffsetRange], max_offsets: int) -> list[OffsetRange | RangeGroup]:
    """Put neighbours together until a task has enough to read."""
    share = sum(one.offsets_count for one in tasks) // MANY_TASKS
    enough = min(max(share, MIN_TASK_OFFSETS), MAX_TASK_OFFSETS, max_offsets)
    groups: list[list[OffsetRange]] = []
    count = enough
    for one in tasks:
        if count + one.offsets_count > enough:
            groups.append([])
            count = 0
        groups[-1].append(one)
        count += one.offsets_count
    return [RangeGroup(tuple(each)) if len(each) > 1 else each[0] for each in groups]


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
