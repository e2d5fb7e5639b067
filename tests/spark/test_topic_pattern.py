"""One job for many topics: a table for each, also for those that appear later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.ingest.table_writer import TableWriter
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.lake.verifier import Verdict
from tests.support.kafka_batches import SentRecord, numbered

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark


def job_of(tidelog: ServiceProcess, folder: Path, pattern: str, kind: str = "parquet") -> IngestJob:
    to = f"{kind}:{folder / 'lake'}"
    return IngestJob(tidelog.url, "", to, str(folder / "state"), topic_pattern=pattern)


def verdict_of(job: IngestJob, topic: str) -> Verdict:
    lake = Lake(f"{job.to.partition(':')[2]}/{topic}")
    return lake.verify({"url": job.server}, checkpoint=job.checkpoint)


def test_each_topic_has_a_table_and_later_ones_get_theirs(
    spark: SparkSession, tidelog: ServiceProcess, tmp_path: Path
) -> None:
    """Only what matches the whole name is read; an empty topic has no table yet."""
    for topic in ("many-a", "many-b", "many-empty", "not-many-a"):
        tidelog.put_topic(topic, partitions=2)
    tidelog.append("many-a", numbered(30))
    tidelog.append("many-b", numbered(20), partition=1)
    tidelog.append("not-many-a", numbered(5))
    job = job_of(tidelog, tmp_path, "many-.*")
    report = run(job, spark=spark)
    tables = [(Path(one.table).name, one.rows) for one in report.tables]
    assert (report.rows, tables) == (50, [("many-a", 30), ("many-b", 20)])
    assert verdict_of(job, "many-a") == Verdict(rows=30)
    tidelog.put_topic("many-c")
    tidelog.append("many-c", numbered(7))
    tidelog.append("many-a", numbered(3), partition=1)
    assert run(job, spark=spark).rows == 10
    assert [verdict_of(job, f"many-{x}").rows for x in "abc"] == [33, 20, 7]
    assert sorted(entry.name for entry in (tmp_path / "lake").iterdir()) == [
        "many-a",
        "many-b",
        "many-c",
    ]
    with pytest.raises(JobError, match=r"belongs to the topic pattern many-\.\*, not to x"):
        run(replace(job, topic_pattern="x"), spark=spark)


@pytest.mark.long
def test_a_failure_between_two_tables_repeats_neither(
    spark: SparkSession,
    tidelog: ServiceProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first has the micro-batch already; the next run adds it to the second alone."""
    for topic in ("two-a", "two-b"):
        tidelog.put_topic(topic)
        tidelog.append(topic, numbered(10))
    job = job_of(tidelog, tmp_path, "two-.")

    def fail(self: TableWriter, *given: object) -> object:
        if self.name.endswith("two-b"):
            raise OSError(28, "No space left on device")
        return write(self, *given)  # type: ignore[arg-type] # passed on as they are

    write = TableWriter.write
    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "write", fail)
        with pytest.raises(JobFailed, match="no space left for the lake"):
            run(job, spark=spark)
    assert verdict_of(job, "two-a").rows == 10
    report = run(job, spark=spark)
    assert [(Path(one.table).name, one.rows) for one in report.tables] == [
        ("two-a", 0),
        ("two-b", 10),
    ]
    assert [verdict_of(job, topic) for topic in ("two-a", "two-b")] == [Verdict(rows=10)] * 2


@pytest.mark.long
@pytest.mark.parametrize("kind", ["parquet", "delta", "json"])
def test_each_table_has_the_columns_of_its_topic(
    spark: SparkSession, tidelog: ServiceProcess, tmp_path: Path, kind: str
) -> None:
    """Inferred when the topic is first seen, and kept for later runs."""
    topics = [f"{kind}-x", f"{kind}-y"]
    for topic, value in zip(topics, (b'{"a": 1}', b'{"b": "z"}'), strict=True):
        tidelog.put_topic(topic)
        tidelog.append(topic, [SentRecord(1_788_000_000_000, None, value)] * 5)
    job = replace(job_of(tidelog, tmp_path, f"{kind}-.", kind), schema="infer")
    assert run(job, spark=spark).rows == 10
    tidelog.append(topics[0], [SentRecord(1_788_000_000_000, None, b'{"a": 2, "c": 1}')])
    assert run(job, spark=spark).rows == 1
    assert [verdict_of(job, topic).rows for topic in topics] == [6, 5]


@pytest.mark.long
def test_a_topic_created_again_is_refused(
    spark: SparkSession, tidelog: ServiceProcess, tmp_path: Path
) -> None:
    """Its table holds another topic of that name, even if lost records may be skipped."""
    tidelog.put_topic("again")
    tidelog.append("again", numbered(5))
    job = replace(job_of(tidelog, tmp_path, "again"), fail_on_data_loss=False)
    run(job, spark=spark)
    tidelog.call("DELETE", "/v1/topics/again")
    tidelog.put_topic("again")
    tidelog.append("again", numbered(3))
    with pytest.raises(JobFailed, match="belongs to another topic again"):
        run(job, spark=spark)
