"""Bounded queries of a compacted topic: a bound inside a gap is not data loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from tests.support.kafka_batches import SentRecord

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "retention.ms": "-1"}
TOPIC = "gappy"
LEFT = [0, 1, 2, 14, 15, 16, 17, 18, 19]


@pytest.fixture(scope="module")
def gappy(tidelog: ServiceProcess) -> str:
    """A topic of which compaction took the offsets 3 to 13."""
    body = {"partitions": 1, "config": COMPACTED}
    tidelog.call("PUT", f"/v1/topics/{TOPIC}", json.dumps(body).encode())
    for number in range(20):
        key = b"k" if 3 <= number < 15 else b"u%d" % number
        tidelog.append(TOPIC, [SentRecord(number, key, b"%d" % number)])
    for action in ("roll", "compact"):
        tidelog.call("POST", f"/v1/topics/{TOPIC}/partitions/0/{action}", b"")
    return TOPIC


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, LEFT),
        ({"maxRecordsPerPartition": "4"}, LEFT),
        ({"minPartitions": "5"}, LEFT),
        ({"endingOffsets": '{"gappy":{"0":10}}'}, [0, 1, 2]),
        ({"startingOffsets": '{"gappy":{"0":5}}', "endingOffsets": '{"gappy":{"0":10}}'}, []),
        ({"startingOffsets": '{"gappy":{"0":5}}', "maxRecordsPerPartition": "3"}, LEFT[3:]),
    ],
)
def test_a_batch_query_reads_past_gaps(
    spark: SparkSession,
    tidelog: ServiceProcess,
    gappy: str,
    options: dict[str, str],
    left: list[int],
    isolation: str,
) -> None:
    """Bounds of the query, and of the tasks that the service plans, may lie in a gap."""
    reader = spark.read.format("tidelog").option("url", tidelog.url).option("subscribe", gappy)
    frame = reader.option("isolation.level", isolation).options(**options).load()
    assert sorted(row.offset for row in frame.select("offset").collect()) == left


def test_a_stream_reads_past_gaps(
    spark: SparkSession, tidelog: ServiceProcess, gappy: str, tmp_path: Path
) -> None:
    """Each micro-batch of four offsets ends somewhere, two of them inside the gap."""
    reader = spark.readStream.format("tidelog").option("url", tidelog.url)
    stream = reader.options(
        subscribe=gappy, startingOffsets="earliest", maxOffsetsPerTrigger="4"
    ).load()
    writer = stream.select("offset").writeStream.format("parquet")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(
        str(tmp_path / "sink")
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "sink")).collect()
    assert sorted(row.offset for row in rows) == LEFT
