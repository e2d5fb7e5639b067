"""Tables in a bucket: filled by the job through executors, read back by other engines."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import duckdb
import polars as pl
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.lake.compaction import Compacted
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.lake.verifier import Verdict
from pyspark_tidelog.tables.opening import open_table
from pyspark_tidelog.tables.target import parse_target
from tests.support.ingest_process import FOLLOW, as_argument, next_event, process
from tests.support.kafka_batches import SentRecord, numbered
from tests.support.object_stores import SECRET, ObjectStore, bucket_at, server_of

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark

START_MS = 1_788_000_000_000


@pytest.fixture(
    scope="module",
    params=[
        "moto",
        pytest.param("versitygw", marks=[pytest.mark.long, pytest.mark.needs("versitygw")]),
    ],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Two servers that this project did not write."""
    with server_of(request.param, tmp_path_factory.mktemp("gateway")) as endpoint:
        yield endpoint


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    return bucket_at(server).announced(monkeypatch)


def click(number: int) -> SentRecord:
    value = b'{"id": %d, "page": "/%d", "day_of": "x"}' % (number, number % 3)
    return SentRecord(START_MS + number * 3_600_000, b"k", value)


@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_a_table_in_a_bucket(
    spark: SparkSession,
    tidelog: ServiceProcess,
    topic: str,
    tmp_path: Path,
    bucket: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kind: str,
) -> None:
    """Two runs with partitions; the second adds a column. Other engines count and sum the same."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"{bucket.url}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read when it was imported
    target = f"delta:{bucket.url}/lake/clicks" if kind == "delta" else "iceberg:lake.web.clicks"
    job = IngestJob(
        tidelog.url,
        topic,
        target,
        str(tmp_path / "checkpoint"),
        schema="id BIGINT, page STRING",
        bad_records=f"{target}_bad",
        partition_by=("page", "day=date(_timestamp)"),
    )
    tidelog.append(topic, [*map(click, range(50)), SentRecord(START_MS, b"k", b"poison")])
    report = run(job, spark=spark)
    assert (report.rows, report.quarantined) == (51, 1)
    tidelog.append(topic, [*map(click, range(50, 60))], partition=1)
    wider = replace(job, schema="id BIGINT, page STRING, day_of STRING")
    assert run(wider, spark=spark).rows == 10
    for found in readings(kind, target, bucket):
        assert (len(found), found["id"].sum()) == (60, sum(range(60)))
        assert found["day"].dtype == pl.Date
        assert found["day_of"].null_count() == 50
        assert set(found["page"]) == {"/0", "/1", "/2"}
    lake = Lake(target)
    for _ in ("as written", "compacted"):
        verdict = lake.verify({"url": tidelog.url}, checkpoint=job.checkpoint)
        assert verdict == Verdict(rows=61, quarantined=1)
        merged = lake.compact()
    assert merged == Compacted()
    assert lake.vacuum(hours=1) == 0
    assert len([*open_table(parse_target(target)).files()]) == 9  # pages by days
    noted = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in text for text in noted)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_checkpoint_in_a_bucket(
    spark: SparkSession, tidelog: ServiceProcess, topic: str, bucket: ObjectStore
) -> None:
    """A second driver is refused; the first is killed, and the next one goes on where it was."""
    place = f"{bucket.url}/state"
    target = f"delta:{bucket.url}/lake"
    job = IngestJob(tidelog.url, topic, target, place, max_offsets_per_trigger=500)
    tidelog.append(topic, numbered(250))
    with process(FOLLOW, as_argument(replace(job, follow=True, trigger_s=0.1))) as running:
        assert next_event(running)["rows"] == 250
        with pytest.raises(JobError, match=rf"running on {place}: process {running.pid} on .*UTC"):
            run(job, spark=spark)
        for first in range(250, 4_000, 250):
            tidelog.append(topic, numbered(250, first=first))
        next_event(running)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert len(pl.read_delta(f"{bucket.url}/lake")) < 4_000
    assert run(job, spark=spark).lag == 0
    tidelog.append(topic, numbered(50))
    assert run(job, spark=spark).rows == 50
    assert Lake(target).verify({"url": tidelog.url}, checkpoint=place) == Verdict(rows=4_050)
    assert len(bucket.names("state/offsets")) == len(bucket.names("state/commits"))


def readings(kind: str, target: str, bucket: ObjectStore) -> Iterator[pl.DataFrame]:
    """Yield what each engine reads of the table."""
    if kind == "delta":
        place = target.partition(":")[2]
        yield pl.read_delta(place, storage_options={**bucket.environment})
        table = deltalake.DeltaTable(place).to_pyarrow_dataset()
        yield pl.from_arrow(duckdb.from_arrow(table).to_arrow_table())  # type: ignore[misc] # a table is a frame
        return
    iceberg = load_catalog("lake", **{"s3.endpoint": bucket.endpoint}).load_table("web.clicks")
    yield pl.from_arrow(iceberg.scan().to_arrow())  # type: ignore[misc] # a table is a frame
    yield iceberg.scan().to_polars()
