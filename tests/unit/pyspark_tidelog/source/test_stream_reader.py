"""Batch and stream reader, called as Spark calls them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.errors import DataLossError, OptionError, ServiceError
from pyspark_tidelog.source.batch_reader import BatchReader
from pyspark_tidelog.source.stream_reader import StreamReader
from pyspark_tidelog.source.tasks import OffsetRange
from tests.support.kafka_batches import numbered
from tests.support.log_service import LogService, MemoryLog

OFFSET = StructType([StructField("offset", LongType())])


def source(service: LogService, **given: str) -> DefaultSource:
    return DefaultSource({"url": service.url, "subscribe": "t", "retries": "1", **given})


class Streams(Protocol):
    def __call__(self, **given: str) -> StreamReader: ...


@pytest.fixture
def stream(service: LogService) -> Iterator[Streams]:
    """Makes stream readers, and stops them as Spark does when a query ends."""
    with ExitStack() as stack:

        def made(**given: str) -> StreamReader:
            reader = source(service, **given).streamReader(OFFSET)
            assert isinstance(reader, StreamReader)
            stack.callback(reader.stop)
            return reader

        yield made


def batch(service: LogService, **given: str) -> BatchReader:
    reader = source(service, **given).reader(OFFSET)
    assert isinstance(reader, BatchReader)
    return reader


def as_spark_stores(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the offset after its way through the JVM and the checkpoint, as text."""
    stored: dict[str, Any] = json.loads(json.dumps(offset))
    return stored


def planned(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    splits = reader.partitions(as_spark_stores(start), as_spark_stores(end))
    return [
        (s.partition, s.start_offset, s.end_offset) for s in splits if isinstance(s, OffsetRange)
    ]


@pytest.fixture
def logs(service: LogService) -> list[MemoryLog]:
    """A topic of two partitions with 30 and 10 records."""
    first, second = service.make("t", partitions=2)
    first.append(numbered(30))
    second.append(numbered(10))
    return [first, second]


def test_the_columns_are_those_of_the_kafka_source(service: LogService) -> None:
    """A job moves here by changing format and address, headers on demand."""
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert source(service).schema().fieldNames() == names
    assert source(service, includeHeaders="true").schema().fieldNames() == [*names, "headers"]
    assert DefaultSource.name() == "tidelog"


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (StructField("offset", IntegerType()), "column offset is bigint, not int"),
        (StructField("size", LongType()), "there is no column size: choose from key, value"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    service: LogService, field: StructField, sentence: str
) -> None:
    """A projection may leave columns out, not invent or convert them."""
    with pytest.raises(OptionError, match=sentence):
        source(service).reader(StructType([field]))


def test_a_schema_without_columns_is_refused(service: LogService) -> None:
    """Nothing at all cannot be read."""
    with pytest.raises(OptionError, match="a schema needs a column"):
        source(service).reader(StructType([]))


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
    """Contradicting offsets are told with the partition."""
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
    with pytest.raises(ServiceError, match="the service has no topic t: create it first"):
        batch(service).partitions()


def test_a_plan_without_tasks_reads_nothing(
    service: LogService, stream: Streams, logs: list[MemoryLog]
) -> None:
    """Spark makes one task without a split of an empty plan, for batch and stream alike."""
    assert len(logs) == 2
    nothing = InputPartition(None)
    assert list(batch(service).read(nothing)) == []
    assert list(stream().read(nothing)) == []


def test_a_stream_is_read_in_micro_batches(stream: Streams, logs: list[MemoryLog]) -> None:
    """End follows start, each offset in one micro-batch, and the reader of tasks is a copy."""
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger="20")
    start = reader.initialOffset()
    first = reader.latestOffset(as_spark_stores(start), ReadMaxRows(20))
    assert planned(reader, start, first) == [(0, 0, 15), (1, 0, 5)]
    logs[1].append(numbered(2))
    second = reader.latestOffset(as_spark_stores(first), ReadAllAvailable())
    assert planned(reader, first, second) == [(0, 15, 30), (1, 5, 12)]
    assert reader.latestOffset(as_spark_stores(second), ReadAllAvailable()) == second
    copy = pickle.loads(pickle.dumps(reader))
    read = [batch.num_rows for s in reader.partitions(first, second) for batch in copy.read(s)]
    assert read == [15, 7]
    reader.commit(second)


def test_a_stream_begins_at_the_end_unless_told(stream: Streams, logs: list[MemoryLog]) -> None:
    """As in Kafka's source a new query reads what comes, not what is there."""
    reader = stream()
    start = reader.initialOffset()
    logs[0].append(numbered(3))
    end = reader.latestOffset(as_spark_stores(start), ReadAllAvailable())
    assert planned(reader, start, end) == [(0, 30, 33)]


def test_the_initial_offset_is_the_same_at_every_call(
    stream: Streams, logs: list[MemoryLog]
) -> None:
    """Spark asks twice in the first micro-batch; records between two answers would vanish."""
    reader = stream()
    first = reader.initialOffset()
    logs[0].append(numbered(3))
    assert reader.initialOffset() == first


def test_a_first_micro_batch_repeated_after_a_crash_reads_the_same(
    stream: Streams, logs: list[MemoryLog]
) -> None:
    """The start is computed anew and has moved; the range is that of the end in Spark's log."""
    crashed = stream()
    start = crashed.initialOffset()
    logs[0].append(numbered(5))
    end = as_spark_stores(crashed.latestOffset(as_spark_stores(start), ReadAllAvailable()))
    before = planned(crashed, start, end)
    logs[0].append(numbered(7))
    restarted = stream()
    assert restarted.initialOffset() != start
    assert planned(restarted, restarted.initialOffset(), end) == before == [(0, 30, 35)]


def test_available_now_ends_where_the_log_ended_at_its_start(
    stream: Streams, logs: list[MemoryLog]
) -> None:
    """What is appended meanwhile is for the next run, in one trigger or in many."""
    reader = stream(startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    logs[0].append(numbered(50))
    start = reader.initialOffset()
    end = reader.latestOffset(as_spark_stores(start), ReadAllAvailable())
    assert planned(reader, start, end) == [(0, 0, 30), (1, 0, 10)]
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert latest["offsets"] == {"t": {"0": 80, "1": 10}}


def test_available_now_with_latest_reads_nothing_the_first_time(
    stream: Streams, logs: list[MemoryLog]
) -> None:
    """The beginning is clamped to the target, or the log would seem to have shrunk."""
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    logs[0].append(numbered(50))
    start = reader.initialOffset()
    assert reader.latestOffset(as_spark_stores(start), ReadAllAvailable()) == start


def test_a_partition_added_while_running_is_read_from_its_start(
    service: LogService, stream: Streams, logs: list[MemoryLog]
) -> None:
    """Topics grow; what is in the new partition already is not lost."""
    reader = stream()
    start = reader.initialOffset()
    added = MemoryLog(start_offset=4, end_offset=4)
    added.append(numbered(3))
    service.topics["t"].append(added)
    end = reader.latestOffset(as_spark_stores(start), ReadAllAvailable())
    assert planned(reader, start, end) == [(2, 4, 7)]
    assert len(logs) == 2


def test_a_topic_made_again_stops_the_stream(
    service: LogService, stream: Streams, logs: list[MemoryLog]
) -> None:
    """The id of the topic is in the checkpoint; the name alone would not tell."""
    assert len(logs) == 2
    reader = stream(startingOffsets="earliest")
    start = as_spark_stores(reader.initialOffset())
    service.make("t", partitions=2, topic_id="second")[0].append(numbered(99))
    with pytest.raises(DataLossError, match="topic t was deleted and created again"):
        reader.latestOffset(start, ReadAllAvailable())


def test_bytes_limit_a_micro_batch(stream: Streams, logs: list[MemoryLog]) -> None:
    """About so many bytes are taken, the smaller of both limits where both are given."""
    size = sum(len(raw) for log in logs for _, _, raw in log.batches)
    reader = stream(startingOffsets="earliest", maxBytesPerTrigger=str(size // 2))
    start = as_spark_stores(reader.initialOffset())
    end = reader.latestOffset(start, ReadMaxBytes(size // 2))
    assert sum(end["offsets"]["t"].values()) in range(18, 21)
    full = StreamReader.latestOffset(reader, as_spark_stores(end), ReadMaxBytes(size))
    assert full["offsets"] == {"t": {"0": 30, "1": 10}}


def test_limits_are_told_to_spark_one_at_a_time(stream: Streams) -> None:
    """Spark has no limit made of two; rows are told first, and the reader minds both."""
    assert stream().getDefaultReadLimit() == ReadAllAvailable()
    assert stream(maxOffsetsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert stream(maxBytesPerTrigger="6").getDefaultReadLimit() == ReadMaxBytes(6)
    both = stream(maxOffsetsPerTrigger="5", maxBytesPerTrigger="6")
    assert both.getDefaultReadLimit() == ReadMaxRows(5)


def test_there_is_no_lag_to_report_before_the_first_look(stream: Streams) -> None:
    """Nothing is made up, and a reader that never connected can stop."""
    reader = stream()
    assert reader.reportLatestOffset() is None
    reader.stop()
