"""When a job merges the small files of a table by itself."""

from __future__ import annotations

import pytest

from pyspark_tidelog.ingest.table_writer import CompactionSchedule


def test_many_new_files_are_merged() -> None:
    """Counted from the last time on, whether that succeeded or not."""
    schedule = CompactionSchedule(None, now_s=0)
    schedule.added(150)
    assert not schedule.is_due(1e6)
    schedule.added(50)
    assert schedule.is_due(1)
    schedule.done(0.01, now_s=2)
    assert not schedule.is_due(1e6)


def test_merging_takes_a_twentieth_of_the_time_at_most() -> None:
    """With many partition folders each micro-batch adds hundreds of files."""
    schedule = CompactionSchedule(None, now_s=0)
    schedule.added(500)
    schedule.done(3, now_s=100)
    schedule.added(500)
    assert not schedule.is_due(159.9)
    assert schedule.is_due(160)


@pytest.mark.parametrize(
    ("every_s", "now_s", "expected"),
    [(60, 59.9, False), (60, 60, True), (0, 1e6, False)],
)
def test_a_time_that_was_asked_for_replaces_this(
    every_s: float, now_s: float, *, expected: bool
) -> None:
    """Without many files, too; and zero is never."""
    schedule = CompactionSchedule(every_s, now_s=0)
    schedule.added(1_000 if every_s == 0 else 1)
    assert schedule.is_due(now_s) is expected
