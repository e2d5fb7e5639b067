"""Tasks are cut where the service says, and each offset is in one of them whatever it says."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.tasks import (
    MANY_TASKS,
    MAX_TASK_OFFSETS,
    OffsetRange,
    RangeGroup,
    cut_by_offsets,
    plan_tasks,
    ranges_of,
)
from tests.support.kafka_batches import numbered
from tests.support.log_service import LogService, Reply


def planned(
    service: LogService, ranges: list[OffsetRange], **given: str
) -> list[tuple[int, int, int]]:
    options = Options.parse({"url": service.url, "subscribe": "t", "retries": "0", **given})
    with ServiceClient(options.endpoint) as client:
        tasks = plan_tasks(client, ranges, options)
    parts = [part for task in tasks for part in ranges_of(task)]
    assert {(part.topic, part.topic_id) for part in parts} <= {
        (r.topic, r.topic_id) for r in ranges
    }
    assert all(isinstance(task, OffsetRange) for task in tasks)
    return [(part.partition, part.start_offset, part.end_offset) for part in parts]


@pytest.fixture
def ranges(service: LogService) -> list[OffsetRange]:
    """A log of batches of 5, 80 and 15 records, and one that is empty."""
    log, _ = service.make("t", partitions=2)
    for count in (5, 80, 15):
        log.append(numbered(count))
    return [OffsetRange("t", 0, 2, 100, "first"), OffsetRange("t", 1, 0, 0, "first")]


def test_more_tasks_than_logs_are_cut_by_the_service(
    service: LogService, ranges: list[OffsetRange]
) -> None:
    """Between batches, so that none is fetched twice; just the query's ranges are asked for."""
    cut = planned(service, ranges, minPartitions="4", **{"isolation.level": "read_committed"})
    assert cut == [(0, 2, 5), (0, 5, 85), (0, 85, 100)]
    assert service.documents == [
        {
            "start": {"0": 2},
            "end": {"0": 100},
            "partitions": [0],
            "isolation": "read_committed",
            "min_splits": 4,
        }
    ]


def test_a_task_a_log_needs_no_plan(service: LogService, ranges: list[OffsetRange]) -> None:
    """No plan is requested if nothing has to be cut, or only by the number of records."""
    assert planned(service, ranges) == [(0, 2, 100)]
    assert planned(service, ranges, minPartitions="1") == [(0, 2, 100)]
    assert planned(service, ranges, maxRecordsPerPartition="49") == [(0, 2, 51), (0, 51, 100)]
    assert service.requests == []


def test_records_bound_what_the_service_planned(
    service: LogService, ranges: list[OffsetRange]
) -> None:
    """A batch is never cut by the service; the option maxRecordsPerPartition cuts it."""
    cut = planned(service, ranges, minPartitions="2", maxRecordsPerPartition="40")
    assert cut == [(0, 2, 5), (0, 5, 45), (0, 45, 85), (0, 85, 100)]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [(0, 2, 50), (0, 51, 100)],
        [(0, 2, 60), (0, 50, 100)],
        [(0, 0, 100)],
        [(0, 2, 99)],
        [(0, 2, 100), (0, 100, 100)],
    ],
)
def test_a_plan_with_gaps_or_overlaps_is_not_believed(
    service: LogService, ranges: list[OffsetRange], parts: list[tuple[int, int, int]]
) -> None:
    """Exactly-once reading must not depend on the service's plan: offsets are used instead."""
    names = ("partition", "start_offset", "end_offset")
    splits = [dict(zip(names, part, strict=True)) for part in parts]
    service.fault = lambda _path: Reply.of_json(200, splits=splits)
    assert planned(service, ranges, minPartitions="2") == [(0, 2, 51), (0, 51, 100)]


@pytest.mark.parametrize("status", [404, 409, 410, 413, 416, 422])
def test_what_the_service_cannot_plan_is_cut_by_offsets(
    service: LogService, ranges: list[OffsetRange], status: int
) -> None:
    """A log that lost its start meanwhile is reported by the task that reads it, or skipped."""
    service.fault = lambda _path: Reply.of_json(status, code="x")
    assert planned(service, ranges, minPartitions="2") == [(0, 2, 51), (0, 51, 100)]


def test_tasks_are_shared_out_to_the_topics(service: LogService) -> None:
    """The larger topic gets more of them, each one at least."""
    for topic, batches in (("a", 9), ("b", 1)):
        (log,) = service.make(topic)
        for _ in range(batches):
            log.append(numbered(10))
    ranges = [OffsetRange("a", 0, 0, 90, "first"), OffsetRange("b", 0, 0, 10, "first")]
    assert len(planned(service, ranges, minPartitions="10")) == 10
    assert [document["min_splits"] for document in service.documents] == [9]


def offsets_of(tasks: list[OffsetRange]) -> list[tuple[str, int, int]]:
    return sorted(
        (task.topic, task.partition, offset)
        for task in tasks
        for offset in range(task.start_offset, task.end_offset)
    )


OFFSET_RANGES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 60)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=5,
).map(lambda pairs: [OffsetRange("t", number, *pair, "id") for number, pair in enumerate(pairs)])


@given(OFFSET_RANGES, st.integers(0, 40))
def test_every_offset_is_in_exactly_one_task(given_ranges: list[OffsetRange], wanted: int) -> None:
    """However the ranges are cut, the union of the tasks is what was asked for."""
    planned = cut_by_offsets(given_ranges, min_partitions=wanted)
    assert offsets_of(planned) == offsets_of(given_ranges)
    assert all(task.offsets_count > 0 for task in planned)


def test_without_a_wish_there_is_a_task_per_partition() -> None:
    """Empty partitions cost no task."""
    given_ranges = [
        OffsetRange("t", 0, 0, 10),
        OffsetRange("t", 1, 5, 5),
        OffsetRange("t", 2, 0, 1),
    ]
    assert cut_by_offsets(given_ranges) == [given_ranges[0], given_ranges[2]]


def test_a_wish_for_more_tasks_cuts_the_larger_ranges() -> None:
    """Parts are shared out by size, and a small range stays whole."""
    planned = cut_by_offsets(
        [OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 0, 10)], min_partitions=10
    )
    assert [task.partition for task in planned] == [0] * 9 + [1]
    assert [task.offsets_count for task in planned] == [10] * 10


def test_a_task_travels_to_another_process() -> None:
    """Spark pickles the driver's plan; nothing may be missing in it."""
    task = OffsetRange("t", 0, 1, 2, "id")
    assert pickle.loads(pickle.dumps(task)) == task


def test_no_task_has_more_offsets_than_allowed() -> None:
    """Whatever number of tasks was wished for, a large range is cut into more."""
    planned = cut_by_offsets(
        [OffsetRange("t", 0, 0, 95), OffsetRange("t", 1, 0, 10)], max_records=10
    )
    assert [task.offsets_count for task in planned] == [9, 10, 9, 10, 9, 10, 9, 10, 9, 10, 10]
    assert offsets_of(planned) == offsets_of(
        [OffsetRange("t", 0, 0, 95), OffsetRange("t", 1, 0, 10)]
    )


def grouped(counts: list[int], **given: str) -> tuple[list[OffsetRange], list[list[OffsetRange]]]:
    """Ranges with so many offsets, and those that each task reads; the service is not asked."""
    options = Options.parse({"url": "http://127.0.0.1:9", "subscribe": "t", **given})
    ranges = [OffsetRange("t", n, 3, 3 + count, "id") for n, count in enumerate(counts)]
    with ServiceClient(options.endpoint) as client:
        tasks = plan_tasks(client, ranges, options)
    return ranges, [[*ranges_of(task)] for task in tasks]


@given(st.lists(st.integers(0, 30_000), min_size=MANY_TASKS, max_size=200))
def test_a_task_reads_many_small_partitions(counts: list[int]) -> None:
    """Each offset once, in order; only a range that is large by itself makes a large task."""
    ranges, tasks = grouped(counts)
    assert [part for task in tasks for part in task] == [r for r in ranges if r.offsets_count]
    sizes = [sum(part.offsets_count for part in task) for task in tasks]
    assert all(
        size <= MAX_TASK_OFFSETS or len(task) == 1 for size, task in zip(sizes, tasks, strict=True)
    )


@pytest.mark.parametrize(
    ("counts", "given_options", "tasks"),
    [
        ([1] * 200, {}, 1),
        ([10] * 1_000, {}, 10),
        ([100] * 1_000, {}, 33),
        ([1_000] * 1_000, {}, 100),
        ([20_000] * 100, {}, 100),
        ([1] * MANY_TASKS, {}, MANY_TASKS),
        ([1] * 200, {"minPartitions": "200"}, 200),
        ([1] * 200, {"minPartitions": "40"}, 200),
        ([10] * 1_000, {"maxRecordsPerPartition": "100"}, 100),
    ],
)
def test_there_are_as_many_tasks_as_the_records_need(
    counts: list[int], given_options: dict[str, str], tasks: int
) -> None:
    """Few records of many partitions are not one task and one file each."""
    assert len(grouped(counts, **given_options)[1]) == tasks


def test_a_group_travels_to_another_process() -> None:
    """As a range does."""
    group = RangeGroup((OffsetRange("t", 0, 1, 2, "id"), OffsetRange("t", 1, 1, 2, "id")))
    assert ranges_of(pickle.loads(pickle.dumps(group))) == group.ranges
