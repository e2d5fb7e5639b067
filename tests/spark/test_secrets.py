"""What Spark writes down about a query: everything but who asked."""

from __future__ import annotations

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


def test_a_secret_is_in_no_plan_log_event_checkpoint_or_error(
    spark: SparkSession,
    tidelog: ServiceProcess,
    topic: str,
    spark_words: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a batch, of SQL, of a stream and of a query that fails, with all that Spark can log."""
    tidelog.append(topic, numbered(3))
    options = {"url": tidelog.url, "subscribe": topic, "token": SECRET}
    spark.sparkContext.setLogLevel("INFO")
    try:
        frame = spark.read.format("tidelog").options(**options).load()
        frame.explain(extended=True)
        assert len(frame.collect()) == 3
        given = ", ".join(f"{name} '{value}'" for name, value in options.items())
        spark.sql(f"CREATE TEMPORARY VIEW secretive USING tidelog OPTIONS ({given})")
        spark.sql("SELECT offset FROM secretive").explain(extended=True)
        stream = spark.readStream.format("tidelog").options(**options).load()
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        query.explain(extended=True)
        with pytest.raises(PySparkException) as refused:
            spark.read.format("tidelog").options(**{**options, "retries": "x"}).load()
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
    assert SECRET not in str(refused.value)
