"""The batch reader, called as Spark calls it."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.source.batch_reader import BatchReader
from pyspark_tidelog.source.tasks import OffsetRange
from tests.support.kafka_batches import numbered
from tests.support.log_service import LogService, MemoryLog

OFFSET = StructType([StructField("offset", LongType())])


def source(service: LogService, **given: str) -> DefaultSource:
    return DefaultSource({"url": service.url, "subscribe": "t", "retries": "1", **given})


def batch(service: LogService, **given: str) -> BatchReader:
    reader = source(service, **given).reader(OFFSET)
    assert isinstance(reader, BatchReader)
    return reader


def test_a_batch_reads_everything_there_is(service: LogService, logs: list[MemoryLog]) -> None:
    """A task per partition, its end fixed at the moment of planning."""
    reader = pickle.loads(pickle.dumps(batch(service)))
    splits = reader.partitions()
    logs[0].append(numbered(5))
    rows = [row for split in splits for arrow in reader.read(split) for row in arrow.to_pylist()]
    assert [row["offset"] for row in rows] == [*range(30), *range(10)]


def test_a_batch_reads_between_the_offsets_given(
    service: LogService, logs: list[MemoryLog]
) -> None:
    """Start inclusive, end exclusive, partition by partition."""
    assert len(logs) == 2
    reader = batch(
        service,
        startingOffsets='{"t": {"0": 5, "1": -2}}',
        endingOffsets='{"t": {"0": 8, "1": -1}}',
        minPartitions="4",
    )
    splits = [split for split in reader.partitions() if isinstance(split, OffsetRange)]
    assert {(split.partition, split.topic_id) for split in splits} == {(0, "first"), (1, "first")}
    assert sum(split.offsets_count for split in splits) == 13


def test_a_batch_that_ends_before_it_starts_is_refused(
    service: LogService, logs: list[MemoryLog]
) -> None:
    """Contradicting offsets are an error with the partition."""
    assert len(logs) == 2
    reader = batch(
        service,
        startingOffsets='{"t": {"0": 5, "1": 0}}',
        endingOffsets='{"t": {"0": 4, "1": 0}}',
    )
    with pytest.raises(
        OptionError, match="startingOffsets 5 of t-0 lies after its endingOffsets 4"
    ):
        reader.partitions()


def test_a_topic_that_is_not_there_is_named(service: LogService) -> None:
    """The sentence says what to do about it."""
    with pytest.raises(OptionError, match="the service has no topic t: create it first"):
        batch(service).partitions()
