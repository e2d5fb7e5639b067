"""What Spark writes down about a query: everything but who asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.kafka_batches import numbered

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark

SECRET = "tl-s3cret-of-nobody"  # the service here asks for none, and does not mind one


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def failure_of(act: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as refused:
        act()
    return str(refused.value)


def test_a_secret_is_in_no_plan_log_event_checkpoint_or_error(
    spark: SparkSession,
    tidelog: ServiceProcess,
    topic: str,
    spark_words: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Reading and writing, of a batch, of SQL, of a stream and of what fails; Spark logs it all."""
    tidelog.append(topic, numbered(3))
    access = {"url": tidelog.url, "token": SECRET}
    options = {**access, "subscribe": topic}
    target = f"{topic}-copy"
    tidelog.put_topic(target)
    spark.sparkContext.setLogLevel("INFO")
    try:
        frame = spark.read.format("tidelog").options(**options).load()
        frame.explain(extended=True)
        assert len(frame.collect()) == 3
        given = ", ".join(f"{name} '{value}'" for name, value in options.items())
        spark.sql(f"CREATE TEMPORARY VIEW secretive USING tidelog OPTIONS ({given})")
        spark.sql("SELECT offset FROM secretive").explain(extended=True)
        frame.select("value").write.format("tidelog").mode("append").options(
            **access, topic=target
        ).save()
        reader = spark.readStream.format("tidelog").options(**options)
        query = (
            reader.option("startingOffsets", "earliest")
            .load()
            .select("value")
            .writeStream.format("tidelog")
            .options(**access, topic=target, checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        query.explain(extended=True)
        told = [
            failure_of(lambda: spark.read.format("tidelog").options(**options, retries="x").load()),
            failure_of(
                lambda: (
                    spark.range(1)
                    .selectExpr("'v' AS value")
                    .write.format("tidelog")
                    .mode("append")
                    .options(**access, topic="nowhere")
                    .save()
                )
            ),
        ]
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    words = bytes_below(spark_words)
    assert topic.encode() in words, "Spark wrote of the query"
    assert b"CreateTempViewUsing" in words, "and of the statement"
    assert SECRET.encode() not in words
    assert SECRET.encode() not in bytes_below(tmp_path)
    printed = capsys.readouterr()
    assert "tidelog" in printed.out, "the plans were printed"
    assert SECRET not in printed.out + printed.err
    assert "retries" in told[0]
    assert "the service has no topic nowhere" in told[1]
    assert SECRET not in "".join(told)
    copied = tidelog.call("GET", f"/v1/topics/{target}/partitions/0/offsets")
    assert copied["high_watermark"] >= 6, "it was written, by batch and by stream"
