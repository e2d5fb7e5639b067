"""Writing with Spark itself: batch and stream, what is written and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.kafka_batches import numbered

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark

MOMENT = datetime(2026, 9, 1, 12, tzinfo=UTC)


def write(frame: DataFrame, tidelog: ServiceProcess, **options: str) -> None:
    frame.write.format("tidelog").mode("append").options(url=tidelog.url, **options).save()


def read(spark: SparkSession, tidelog: ServiceProcess, topics: str) -> DataFrame:
    options = {"url": tidelog.url, "subscribe": topics, "isolation.level": "read_committed"}
    return spark.read.format("tidelog").options(**options, includeHeaders="true").load()


def test_every_column_of_kafkas_sink_is_written_and_read_back(
    spark: SparkSession, tidelog: ServiceProcess, topic: str
) -> None:
    """Strings, nulls, headers, partitions, topics row by row, and times."""
    other = f"{topic}-2"
    tidelog.put_topic(other)
    schema = (
        "key STRING, value BINARY, topic STRING, partition INT, timestamp TIMESTAMP,"
        " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    rows: list[tuple[Any, ...]] = [
        ("k0", b"v0", topic, 1, MOMENT, [("h", b"1"), ("h", None)]),
        ("k1", None, topic, 0, MOMENT, None),
        (None, b"v2", other, None, MOMENT, []),
    ]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    write(frame, tidelog)
    found = read(spark, tidelog, f"{topic},{other}").orderBy("value").collect()
    assert [
        (r.key, r.value, r.topic, r.partition, r.headers and [*map(tuple, r.headers)])
        for r in found
    ] == [
        (b"k1", None, topic, 0, None),
        (b"k0", b"v0", topic, 1, [("h", b"1"), ("h", None)]),
        (None, b"v2", other, 0, None),
    ]
    assert {row.timestamp.astimezone(UTC) for row in found} == {MOMENT}


def test_a_named_write_happens_once(
    spark: SparkSession, tidelog: ServiceProcess, topic: str
) -> None:
    """A scheduler that repeats a job repeats no row; another name is another write."""
    frame = spark.range(500).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    for name in ("monday", "monday", "tuesday"):
        write(frame, tidelog, topic=topic, writeId=f"{topic}-{name}", compression="zstd")
    counts = read(spark, tidelog, topic).groupBy("value").count().select("count").distinct()
    assert [row[0] for row in counts.collect()] == [2]


def test_a_stream_from_topic_to_topic_survives_the_repetition_of_a_batch(
    spark: SparkSession, tidelog: ServiceProcess, topic: str, tmp_path: Path
) -> None:
    """Spark forgets that a micro-batch was done, as after a crash, and runs it again: no row twice.

    And what of the columns of the source is not written is passed over.
    """
    source = f"{topic}-source"
    tidelog.put_topic(source, partitions=2)
    tidelog.append(source, numbered(60))
    tidelog.append(source, numbered(40, first=60), partition=1)

    def copy() -> None:
        options = {"url": tidelog.url, "subscribe": source, "startingOffsets": "earliest"}
        query = (
            spark.readStream.format("tidelog")
            .options(**options, maxOffsetsPerTrigger="50")
            .load()
            .drop("partition", "topic")
            .writeStream.format("tidelog")
            .options(url=tidelog.url, topic=topic, checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    copy()
    last = tmp_path / "commits" / "1"
    last.unlink()
    last.with_name(".1.crc").unlink(missing_ok=True)
    tidelog.append(source, numbered(10, first=100))
    copy()
    values = [row.value for row in read(spark, tidelog, topic).select("value").collect()]
    assert sorted(values) == sorted(record.value for record in numbered(110) if record.value)


def test_a_log_is_not_overwritten(spark: SparkSession, tidelog: ServiceProcess, topic: str) -> None:
    """The mode is refused, not taken for another, before a task is started."""
    frame = spark.range(1).selectExpr("'x' AS value")
    with pytest.raises(PySparkException, match="appended to, never overwritten"):
        frame.write.format("tidelog").mode("overwrite").options(url=tidelog.url, topic=topic).save()
