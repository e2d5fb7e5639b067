"""What can go wrong around the job: one sentence, and the next run makes good."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from pyspark_tidelog.errors import JobError, JobFailed, OptionError
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.lake.verifier import Verdict
from tests.support.kafka_batches import SentRecord, numbered

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = [pytest.mark.spark, pytest.mark.long]


class Trouble:
    """A topic, a lake, and the job between them."""

    def __init__(self, folder: Path, tidelog: ServiceProcess, topic: str) -> None:
        self.folder = folder
        self.tidelog = tidelog
        self.topic = topic

    def job(self, *, lake: Path | None = None, **more: Any) -> IngestJob:
        to, checkpoint = lake or self.folder / "lake", self.folder / "checkpoint"
        return IngestJob(self.tidelog.url, self.topic, f"parquet:{to}", str(checkpoint), **more)

    def verdict(self, lake: Path | None = None) -> Verdict:
        return Lake(str(lake or self.folder / "lake")).verify({"url": self.tidelog.url})

    def give_up(self, before_offset: int) -> None:
        """Do as retention does."""
        path = f"/v1/topics/{self.topic}/partitions/0/delete-records"
        self.tidelog.call("POST", path, json.dumps({"before_offset": before_offset}).encode())


@pytest.fixture
def trouble(tmp_path: Path, tidelog: ServiceProcess, topic: str) -> Trouble:
    tidelog.append(topic, numbered(50))
    return Trouble(tmp_path, tidelog, topic)


def test_retention_that_overtakes_the_job_is_told_or_passed_over(
    spark: SparkSession, trouble: Trouble
) -> None:
    """By default it stops and names the offsets; with the option it reads what is left, once."""
    run(trouble.job(), spark=spark)
    trouble.tidelog.append(trouble.topic, numbered(50, first=50))
    trouble.give_up(70)
    with pytest.raises(JobFailed, match=r"offsets 50 to 69 of topic .* were deleted") as lost:
        run(trouble.job(), spark=spark)
    assert lost.value.is_permanent
    assert run(trouble.job(fail_on_data_loss=False), spark=spark).rows == 30
    assert trouble.verdict() == Verdict(rows=30, gone=50)


def test_an_expression_that_cannot_be_computed_costs_nothing(
    spark: SparkSession, trouble: Trouble
) -> None:
    """It is named in a sentence before anything is planned, and may be mended."""
    with pytest.raises(JobError, match=r"^day=date\(nothing\) cannot be computed: .*nothing"):
        run(trouble.job(partition_by=("day=date(nothing)",)), spark=spark)
    with pytest.raises(OptionError, match="column key is binary: a partition column must be"):
        run(trouble.job(partition_by=("key",)), spark=spark)
    run(trouble.job(partition_by=("day=date(timestamp)",)), spark=spark)
    assert trouble.verdict() == Verdict(rows=50)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a mebibyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.needs("mount")
def test_a_full_disk_is_told_and_once_there_is_room_nothing_is_missing(
    spark: SparkSession, trouble: Trouble, small_disk: Path
) -> None:
    """What was written before stays as it was, and no half of a micro-batch shows."""
    lake = small_disk / "lake"
    run(trouble.job(lake=lake), spark=spark)
    chance = random.Random(6)  # half a disk that no codec makes smaller
    big = [SentRecord(1, b"%d" % n, chance.randbytes(1_000)) for n in range(500)]
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (900 << 10))
    for first in range(0, len(big), 100):
        trouble.tidelog.append(trouble.topic, big[first : first + 100])
    with pytest.raises(JobFailed, match="there is no space left for the lake: free some and run"):
        run(trouble.job(lake=lake), spark=spark)
    assert trouble.verdict(lake) == Verdict(rows=50, behind=500)
    ballast.unlink()
    assert run(trouble.job(lake=lake), spark=spark).rows == 500
    assert trouble.verdict(lake) == Verdict(rows=550)
