"""Tables in a bucket: filled by the job through executors, read back by other engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from pyspark.sql import SparkSession

from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.lake.verifier import Verdict
from tests.support.kafka_batches import SentRecord
from tests.support.object_stores import ObjectStore, bucket_at, moto

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark

START_MS = 1_788_000_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with moto() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    made = bucket_at(server)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def click(number: int) -> SentRecord:
    value = b'{"id": %d, "page": "/%d"}' % (number, number % 3)
    return SentRecord(START_MS + number * 3_600_000, b"k", value)


def test_a_delta_table_in_a_bucket(
    spark: SparkSession, tidelog: ServiceProcess, topic: str, tmp_path: Path, bucket: ObjectStore
) -> None:
    """Two runs, partitioned by day; DuckDB and Polars count and sum the same."""
    job = IngestJob(
        tidelog.url,
        topic,
        f"delta:{bucket.url}/lake/clicks",
        str(tmp_path / "checkpoint"),
        partition_by=("partition", "day=date(timestamp)"),
    )
    tidelog.append(topic, [click(n) for n in range(50)])
    assert run(job, spark=spark).rows == 50
    tidelog.append(topic, [click(n) for n in range(50, 60)], partition=1)
    assert run(job, spark=spark).rows == 10
    found = pl.read_delta(f"{bucket.url}/lake/clicks", storage_options={**bucket.environment})
    assert (len(found), found["offset"].sum()) == (60, sum(range(50)) + sum(range(10)))
    assert found["day"].dtype == pl.Date
    lake = Lake(job.to)
    source = {"url": tidelog.url}
    assert lake.verify(source, checkpoint=job.checkpoint) == Verdict(rows=60)
    tidelog.append(topic, [click(0)])
    assert run(job, spark=spark).rows == 1
    merged = lake.compact()
    assert merged.files_before > merged.files_after > 0
    assert lake.vacuum(hours=1) == 0
    assert lake.verify(source, checkpoint=job.checkpoint) == Verdict(rows=61)
