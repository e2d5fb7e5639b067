"""Streaming queries and the ingestion job against the real service: each record once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestEvent, IngestJob, IngestProgress
from tests.support.kafka_batches import numbered

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark


class Lake:
    """A sink and its checkpoint, and the job between them and a topic."""

    def __init__(self, folder: Path, server: str, topic: str) -> None:
        self.folder = folder / "lake"
        self._checkpoint = folder / "checkpoint"
        self._server = server
        self._topic = topic

    def job(self, *, max_offsets_per_trigger: int = 1_000_000) -> IngestJob:
        return IngestJob(
            server=self._server,
            topics=self._topic,
            to=f"parquet:{self.folder}",
            checkpoint=str(self._checkpoint),
            max_offsets_per_trigger=max_offsets_per_trigger,
        )

    def offsets(self) -> list[tuple[int, int]]:
        """Return partition and offset of every row that a plain listing of the folder shows."""
        tables = [
            pq.ParquetFile(path).read(["partition", "offset"])
            for path in sorted(self.folder.glob("batches=*/batch_id=*/*.parquet"))
        ]
        rows = [row for table in tables for row in table.to_pylist()]
        return sorted((row["partition"], row["offset"]) for row in rows)


@pytest.fixture
def lake(tmp_path: Path, tidelog: ServiceProcess, topic: str) -> Lake:
    return Lake(tmp_path, tidelog.url, topic)


def every(*counts: int) -> list[tuple[int, int]]:
    return [(number, offset) for number, count in enumerate(counts) for offset in range(count)]


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, tidelog: ServiceProcess, topic: str, tmp_path: Path
) -> None:
    """AvailableNow twice over one checkpoint: the second run has what came in between."""
    seen: list[list[tuple[int, int]]] = []

    def catch_up() -> list[tuple[int, int]]:
        seen.clear()
        reader = spark.readStream.format("tidelog").options(url=tidelog.url, subscribe=topic)
        records = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="60").load()
        query = (
            records.select("partition", "offset")
            .writeStream.foreachBatch(
                lambda frame, _: seen.append([tuple(r) for r in frame.collect()])
            )
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return sorted(row for rows in seen for row in rows)

    tidelog.append(topic, numbered(100), partition=0)
    tidelog.append(topic, numbered(50), partition=1)
    assert catch_up() == every(100, 50)
    assert len(seen) == 3
    tidelog.append(topic, numbered(10), partition=1)
    assert catch_up() == [(1, offset) for offset in range(50, 60)]


def test_the_job_brings_in_only_what_is_new(
    spark: SparkSession, tidelog: ServiceProcess, topic: str, lake: Lake
) -> None:
    """Three runs: everything, what was appended since, nothing; and the progress adds up."""
    told: list[IngestEvent] = []
    tidelog.append(topic, numbered(100))
    first = run(lake.job(max_offsets_per_trigger=40), told.append, spark=spark)
    assert (first.rows, first.batches, first.lag, first.is_stopped) == (100, 3, 0, False)
    assert [
        (p.batch_id, p.rows, p.total_rows, p.lag) for p in told if isinstance(p, IngestProgress)
    ] == [
        (0, 40, 40, 60),
        (1, 40, 80, 20),
        (2, 20, 100, 0),
    ]
    tidelog.append(topic, numbered(7), partition=1)
    assert run(lake.job(), spark=spark).rows == 7
    assert run(lake.job(), spark=spark).rows == 0
    assert lake.offsets() == every(100, 7)


def test_a_topic_made_again_is_not_mixed_into_its_predecessor(
    spark: SparkSession, tidelog: ServiceProcess, topic: str, lake: Lake
) -> None:
    """The same name with another id is refused before Spark starts anything."""
    tidelog.append(topic, numbered(5))
    run(lake.job(), spark=spark)
    tidelog.call("DELETE", f"/v1/topics/{topic}")
    tidelog.put_topic(topic, partitions=2)
    with pytest.raises(JobError, match="belongs to another topic"):
        run(lake.job(), spark=spark)


def test_a_full_or_forbidden_sink_fails_with_the_cause(
    spark: SparkSession, tidelog: ServiceProcess, topic: str, lake: Lake
) -> None:
    """The error names the cause and what to do, and the next run succeeds."""
    lake.folder.mkdir()
    (lake.folder / "_writing").write_text("in the way")
    tidelog.append(topic, numbered(5))
    with pytest.raises(
        JobFailed, match=r"^there is a file where the lake needs a folder: move .*_writing"
    ):
        run(lake.job(), spark=spark)
    (lake.folder / "_writing").unlink()
    assert run(lake.job(), spark=spark).rows == 5
    assert lake.offsets() == every(5)
