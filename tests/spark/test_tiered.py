"""Spark over a topic of which nine tenths are in the bucket, while retention runs."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession

from tests.support.server import serving

pytestmark = pytest.mark.spark

RECORDS = 400
PER_APPEND = 10
LOG = "/v1/topics/events/partitions/0"
TIERED = {
    "segment.bytes": 500,
    "retention.ms": -1,
    "remote.storage.enable": True,
    "local.retention.bytes": 0,
}


def fill(client: httpx.Client) -> None:
    """Append to a tiered topic until nine tenths of it are in the bucket only."""
    client.put("/v1/topics/events", json={"config": TIERED}).raise_for_status()
    for first in range(0, RECORDS, PER_APPEND):
        records = [{"value": number} for number in range(first, first + PER_APPEND)]
        client.post(f"{LOG}/records", json={"records": records}).raise_for_status()
    while client.get(f"{LOG}/offsets").json()["local_log_start_offset"] < RECORDS * 9 // 10:
        pass  # the archiver has a thread of its own


def test_each_record_comes_once_wherever_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """In several tasks, and while retention passes look for what to remove."""
    url = f"file://{tmp_path}/bucket"
    ended = threading.Event()
    with (
        serving(
            tmp_path / "data", archive=url, archive_interval_ms=10, min_segment_bytes=14
        ) as served,
        httpx.Client(base_url=served.url) as client,
    ):
        fill(client)

        def retain() -> None:
            while not ended.is_set():
                client.post(f"{LOG}/retention").raise_for_status()

        retaining = threading.Thread(target=retain)
        retaining.start()
        try:
            reader = spark.read.format("tidelog").option("minPartitions", "4")
            frame = reader.options(url=served.url, subscribe="events").load()
            rows = frame.selectExpr("offset", "CAST(value AS STRING) AS value").collect()
        finally:
            ended.set()
            retaining.join()
    found = sorted((row.offset, row.value) for row in rows)
    assert found == [(number, str(number)) for number in range(RECORDS)]
