"""Kafka's own data directory, served as it is and read through Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from tests.support.golden import golden_archive, golden_partitions, golden_records

if TYPE_CHECKING:
    from tests.spark.conftest import ServeDirectory, ServiceProcess

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def kafka_directory(
    tmp_path_factory: pytest.TempPathFactory, serve_directory: ServeDirectory
) -> Iterator[ServiceProcess]:
    """Serves a copy of the archive that a broker wrote and closed."""
    copy = tmp_path_factory.mktemp("golden") / "data"
    shutil.copytree(golden_archive("clean"), copy)
    with serve_directory(copy) as process:
        yield process


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("directory", golden_partitions("clean"), ids=lambda path: path.name)
def test_a_partition_of_kafka_read_through_spark_is_what_a_consumer_got(
    spark: SparkSession, kafka_directory: ServiceProcess, directory: Path, isolation: str
) -> None:
    """Offsets, times, keys, values and headers of every record, aborted ones or not."""
    topic = directory.name.rpartition("-")[0]
    reader = spark.read.format("tidelog").options(url=kafka_directory.url, subscribe=topic)
    reader = reader.option("includeHeaders", "true").option("isolation.level", isolation)
    rows = reader.load().orderBy("offset").collect()
    assert [
        (
            row.offset,
            round(row.timestamp.replace(tzinfo=UTC).timestamp() * 1000),
            row.timestampType + 1,  # the consumer that was asked counts from 1
            row.key,
            row.value,
            tuple((header.key, header.value) for header in row.headers or ()),
        )
        for row in rows
    ] == [
        (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers)
        for r in golden_records(directory, isolation)
    ]
