"""Batch queries against the real service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.kafka_batches import SentRecord, numbered

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark


def read(spark: SparkSession, tidelog: ServiceProcess, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("tidelog").option("url", tidelog.url).option("subscribe", topic)
    return reader.options(**options).load()


def test_a_batch_query_sees_what_was_appended(
    spark: SparkSession, tidelog: ServiceProcess, topic: str
) -> None:
    """Every column of every record, from both partitions, of every codec."""
    for partition in range(2):
        for codec in range(5):
            tidelog.append(topic, numbered(30, first=30 * codec), partition=partition, codec=codec)
    rows = read(spark, tidelog, topic).orderBy("partition", "offset").collect()
    start = datetime.fromtimestamp(1_788_000_000, UTC).replace(tzinfo=None)
    expected = [
        (
            record.key,
            record.value,
            topic,
            partition,
            offset,
            start + timedelta(milliseconds=offset),
            0,
        )
        for partition in range(2)
        for offset, record in enumerate(numbered(150))
    ]
    assert [(*row[:2], *row[2:]) for row in rows] == expected


def test_headers_come_on_demand(spark: SparkSession, tidelog: ServiceProcess, topic: str) -> None:
    """Names and values in order, with nulls and doubles; null for none, as in Kafka's source."""
    headers = (("trace", b"4bf9"), ("", None), ("trace", b""))
    tidelog.append(topic, [SentRecord(0, None, None, headers), SentRecord(1, b"", b"")])
    rows = read(spark, tidelog, topic, includeHeaders="true").select("key", "headers").collect()
    assert [(row.key, row.headers and [*map(tuple, row.headers)]) for row in rows] == [
        (None, list(headers)),
        (b"", None),
    ]


def test_offsets_and_a_schema_narrow_a_query(
    spark: SparkSession, tidelog: ServiceProcess, topic: str
) -> None:
    """Between two offsets, one column, in more tasks than partitions: each offset once."""
    tidelog.append(topic, numbered(100))
    reader = spark.read.format("tidelog").schema("offset BIGINT").option("minPartitions", "5")
    frame = reader.options(
        url=tidelog.url,
        subscribe=topic,
        startingOffsets=f'{{"{topic}": {{"0": 7, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 93, "1": -1}}}}',
    ).load()
    assert sorted(row.offset for row in frame.collect()) == list(range(7, 93))


def test_the_service_chooses_finds_times_and_cuts(
    spark: SparkSession, tidelog: ServiceProcess, topic: str
) -> None:
    """A pattern, a time, tasks between batches and what is committed: against the real contract."""
    for first in range(0, 100, 10):
        tidelog.append(topic, numbered(10, first=first))
    reader = (
        spark.read.format("tidelog")
        .schema("offset BIGINT")
        .options(
            url=tidelog.url,
            subscribePattern=f"{topic[:-1]}.",
            startingTimestamp=str(1_788_000_000_000 + 33),
            startingOffsetsByTimestampStrategy="latest",
            minPartitions="20",
        )
    )
    frame = reader.option("isolation.level", "read_committed").load()
    assert frame.rdd.getNumPartitions() == 7  # as many as there are batches: none is cut
    assert sorted(row.offset for row in frame.collect()) == list(range(33, 100))


def test_filters_reach_the_source_where_the_session_allows_it(
    spark: SparkSession, tidelog: ServiceProcess, topic: str
) -> None:
    """Rows are those without push-down, and tasks only those that are needed."""
    for partition in range(2):
        tidelog.append(topic, numbered(100), partition=partition)
    session = spark.newSession()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    reader = session.read.format("tidelog").options(url=tidelog.url, subscribe=topic)
    frame = reader.option("pushFilters", "true").load()
    start = datetime.fromtimestamp(1_788_000_000, UTC)
    chosen = frame.where("partition = 1 AND offset < 60 AND value IS NOT NULL").where(
        frame.timestamp >= start + timedelta(milliseconds=40)
    )
    rows = chosen.select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(1, offset) for offset in range(40, 60)]
    assert chosen.rdd.getNumPartitions() == 1


def test_a_session_that_was_told_nothing_finds_the_source_by_its_name(
    spark: SparkSession, tidelog: ServiceProcess, topic: str
) -> None:
    """Where the package is installed Spark finds it by itself, in SQL as well."""
    tidelog.append(topic, numbered(3))
    session = spark.newSession()
    options = f"url '{tidelog.url}', subscribe '{topic}'"
    session.sql(f"CREATE TEMPORARY VIEW log USING tidelog OPTIONS ({options})")
    assert [row.offset for row in session.sql("SELECT offset FROM log").collect()] == [0, 1, 2]


def test_an_empty_topic_has_columns_and_no_rows(
    spark: SparkSession, tidelog: ServiceProcess, topic: str
) -> None:
    """A topic without records is not an error."""
    assert read(spark, tidelog, topic).collect() == []
