"""The stream reader, called as Spark calls it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.errors import DataLossError
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


def as_spark_stores(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the offset after its way through the JVM and the checkpoint, as text."""
    stored: dict[str, Any] = json.loads(json.dumps(offset))
    return stored


def planned(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    splits = reader.partitions(as_spark_stores(start), as_spark_stores(end))
    return [
        (s.partition, s.start_offset, s.end_offset) for s in splits if isinstance(s, OffsetRange)
    ]


def test_a_plan_without_tasks_reads_nothing(
    service: LogService, stream: Streams, logs: list[MemoryLog]
) -> None:
    """Spark makes one task without a split of an empty plan, for batch and stream alike."""
    assert len(logs) == 2
    nothing = InputPartition(None)
    assert list(source(service).reader(OFFSET).read(nothing)) == []
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
    """The recomputed start has moved; the range is that of the end in Spark's log."""
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
    """Spark has no combined limit; rows come first, and the reader applies both."""
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
