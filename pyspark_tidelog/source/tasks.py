"""From the ranges of a query to its tasks, about equal in bytes where more than one reads a range.

The service knows where its batches lie, so it is asked to cut (`planSplits`); what it does not know
any more is cut by offsets, and the tasks will tell what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Final
from urllib.parse import quote

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.splits import Split, plan_splits

# Gone or moved since the ranges were made, too many for the service, or a plan it does not make.
_NOT_PLANNED: Final = frozenset({404, 409, 410, 413, 416, 422})


def plan_tasks(client: ServiceClient, ranges: Iterable[Split], options: Options) -> list[Split]:
    """Return tasks that together are the ranges; as many as the options ask for, or about that."""
    filled = [split for split in ranges if split.offsets_count > 0]
    if options.min_partitions > len(filled):
        filled = _balanced(client, filled, options)
    return plan_splits(filled, max_records=options.max_records_per_partition)


def _balanced(client: ServiceClient, ranges: Sequence[Split], options: Options) -> list[Split]:
    """Share the tasks out to the topics by offsets, and inside of a topic by bytes."""
    total = sum(split.offsets_count for split in ranges)
    tasks: list[Split] = []
    for topic, logs in groupby(ranges, key=lambda split: split.topic):
        own = list(logs)
        count = sum(split.offsets_count for split in own)
        share = max(len(own), round(count / total * options.min_partitions))
        if share > len(own):
            plan = _planned(client, topic, own, share, options.isolation)
            own = plan or plan_splits(own, min_partitions=share)
        tasks += own
    return tasks


def _planned(
    client: ServiceClient, topic: str, ranges: Sequence[Split], share: int, isolation: str
) -> list[Split]:
    """Return the plan of the service, or nothing where it has none for just these ranges."""
    by_partition = {split.partition: split for split in ranges}
    wanted = {
        "start": {str(split.partition): split.start_offset for split in ranges},
        "end": {str(split.partition): split.end_offset for split in ranges},
        "partitions": sorted(by_partition),
        "isolation": isolation,
        "min_splits": share,
    }
    answer = client.post(f"/v1/topics/{quote(topic)}/splits", wanted, expected=_NOT_PLANNED)
    if answer.status != 200:
        return []
    tasks = [
        Split(
            topic,
            part["partition"],
            part["start_offset"],
            part["end_offset"],
            by_partition[part["partition"]].topic_id,
        )
        for part in answer.json()["splits"]
        if part["partition"] in by_partition
    ]
    # Each offset once is ours to promise, whoever planned.
    return tasks if all(_is_covered(split, tasks) for split in ranges) else []


def _is_covered(wanted: Split, tasks: Iterable[Split]) -> bool:
    own = [task for task in tasks if task.partition == wanted.partition]
    return (
        bool(own)
        and own[0].start_offset == wanted.start_offset
        and own[-1].end_offset == wanted.end_offset
        and all(task.offsets_count > 0 for task in own)
        and all(task.end_offset == after.start_offset for task, after in pairwise(own))
    )
