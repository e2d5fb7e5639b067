"""Ranges of offsets are cut into tasks without losing or repeating an offset."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from pyspark_tidelog.source.splits import Split, plan_splits


def offsets_of(splits: list[Split]) -> list[tuple[str, int, int]]:
    return sorted(
        (split.topic, split.partition, offset)
        for split in splits
        for offset in range(split.start_offset, split.end_offset)
    )


ranges = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 60)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=5,
).map(lambda pairs: [Split("t", number, *pair, "id") for number, pair in enumerate(pairs)])


@given(ranges, st.integers(0, 40))
def test_every_offset_is_in_exactly_one_task(given_ranges: list[Split], wanted: int) -> None:
    """However the ranges are cut, the union of the tasks is what was asked for."""
    planned = plan_splits(given_ranges, min_partitions=wanted)
    assert offsets_of(planned) == offsets_of(given_ranges)
    assert all(split.offsets_count > 0 for split in planned)


def test_without_a_wish_there_is_a_task_per_partition() -> None:
    """Empty partitions cost no task."""
    given_ranges = [Split("t", 0, 0, 10), Split("t", 1, 5, 5), Split("t", 2, 0, 1)]
    assert plan_splits(given_ranges) == [given_ranges[0], given_ranges[2]]


def test_a_wish_for_more_tasks_cuts_the_larger_ranges() -> None:
    """Parts are shared out by size, and a small range stays whole."""
    planned = plan_splits([Split("t", 0, 0, 90), Split("t", 1, 0, 10)], min_partitions=10)
    assert [split.partition for split in planned] == [0] * 9 + [1]
    assert [split.offsets_count for split in planned] == [10] * 10


def test_a_task_travels_to_another_process() -> None:
    """Spark pickles what the driver planned; nothing may stay behind."""
    split = Split("t", 0, 1, 2, "id")
    assert pickle.loads(pickle.dumps(split)) == split


def test_no_task_has_more_offsets_than_allowed() -> None:
    """Whatever number of tasks was wished for, a large range is cut into more."""
    planned = plan_splits([Split("t", 0, 0, 95), Split("t", 1, 0, 10)], max_records=10)
    assert [split.offsets_count for split in planned] == [9, 10, 9, 10, 9, 10, 9, 10, 9, 10, 10]
    assert offsets_of(planned) == offsets_of([Split("t", 0, 0, 95), Split("t", 1, 0, 10)])
