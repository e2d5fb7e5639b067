"""Filters narrow what is fetched, and never let a row go that passes them."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.source.batch_reader import FilteringReader
from pyspark_tidelog.source.tasks import OffsetRange
from tests.support.kafka_batches import numbered
from tests.support.log_service import LogService

OFFSET = ("offset",)
PARTITION = ("partition",)
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT_MS = 1_767_225_600_000


@pytest.fixture
def reader(service: LogService) -> FilteringReader:
    """A reader of two partitions with ten records each."""
    for log in service.make("t", partitions=2):
        log.append(numbered(10))
    options = {"url": service.url, "subscribe": "t", "pushFilters": "true", "retries": "0"}
    made = DefaultSource(options).reader(StructType([StructField("offset", LongType())]))
    assert isinstance(made, FilteringReader)
    return made


def ranges(reader: FilteringReader) -> list[tuple[int, int, int]]:
    """Plan as Spark does, after the reader has gone to another process."""
    splits = pickle.loads(pickle.dumps(reader)).partitions()
    assert all(isinstance(split, OffsetRange) for split in splits)
    return [(split.partition, split.start_offset, split.end_offset) for split in splits]


@pytest.mark.parametrize(
    ("filters", "planned"),
    [
        ([], [(0, 0, 10), (1, 0, 10)]),
        ([EqualTo(PARTITION, 1), EqualTo(OFFSET, 3)], [(1, 3, 4)]),
        ([EqualNullSafe(PARTITION, 1), EqualNullSafe(OFFSET, 9)], [(1, 9, 10)]),
        ([GreaterThan(OFFSET, 3), LessThan(OFFSET, 8)], [(0, 4, 8), (1, 4, 8)]),
        ([GreaterThanOrEqual(OFFSET, 3), LessThanOrEqual(OFFSET, 8)], [(0, 3, 9), (1, 3, 9)]),
        ([GreaterThan(PARTITION, 0), IsNotNull(OFFSET)], [(1, 0, 10)]),
        ([In(PARTITION, (0, 7))], [(0, 0, 10)]),
        ([EqualTo(("topic",), "other")], []),
        ([In(("topic",), ("t", "u"))], [(0, 0, 10), (1, 0, 10)]),
        ([GreaterThan(OFFSET, 8), LessThan(OFFSET, 3)], []),
    ],
)
def test_filters_taken_are_exact(
    reader: FilteringReader, filters: list[Filter], planned: list[tuple[int, int, int]]
) -> None:
    """Spark does not look again, so a bound may be off by none."""
    assert list(reader.pushFilters(filters)) == []
    assert ranges(reader) == planned


@pytest.mark.parametrize(
    "wanted",
    [
        Not(EqualTo(OFFSET, 3)),
        EqualTo(("value",), b"x"),
        IsNotNull(("key",)),
        EqualTo(OFFSET, None),
        EqualTo(PARTITION, "0"),
        In(PARTITION, (0, None)),
        LessThan(("timestamp",), MOMENT),
        GreaterThan(("timestamp",), MOMENT.replace(tzinfo=None)),
    ],
    ids=str,
)
def test_other_filters_are_left_to_spark(reader: FilteringReader, wanted: Filter) -> None:
    """What is not understood narrows nothing."""
    assert list(reader.pushFilters([wanted])) == [wanted]
    assert ranges(reader) == [(0, 0, 10), (1, 0, 10)]


def test_a_list_of_offsets_narrows_and_spark_looks_again(reader: FilteringReader) -> None:
    """Between the least and the greatest lie others."""
    wanted = In(OFFSET, (7, 2))
    assert list(reader.pushFilters([wanted])) == [wanted]
    assert ranges(reader) == [(0, 2, 8), (1, 2, 8)]


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual])
def test_a_time_narrows_the_beginning(
    service: LogService, reader: FilteringReader, kind: type[GreaterThan]
) -> None:
    """From the first record at or after that time.

    Later ones may be earlier, so Spark filters again.
    """
    service.topics["t"][0].times = {MOMENT_MS - 1: 4}
    wanted = kind(("timestamp",), MOMENT)
    earlier = kind(("timestamp",), MOMENT - timedelta(days=1))
    assert list(reader.pushFilters([wanted, earlier])) == [wanted, earlier]
    assert ranges(reader) == [(0, 4, 10)]


def test_a_stream_pushes_nothing_down(service: LogService) -> None:
    """An option that would do nothing is refused."""
    source = DefaultSource({"url": service.url, "subscribe": "t", "pushFilters": "true"})
    with pytest.raises(OptionError, match="pushFilters is for batch queries"):
        source.streamReader(source.schema())
