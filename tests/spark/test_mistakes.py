"""What goes wrong is one sentence, the last of Spark's exception that is not Spark's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_tidelog.ingest.runner import root_cause
from tests.support.kafka_batches import encode, numbered
from tests.support.log_service import LogService, Reply, serving

pytestmark = pytest.mark.spark

OFFSETS = {"startingOffsets": '{"t": {"0": 3}}', "endingOffsets": '{"t": {"0": 2}}'}


@pytest.fixture
def service() -> Iterator[LogService]:
    """A service in memory with ten records, which can do what the real one must not."""
    with serving(LogService()) as running:
        running.make("t")[0].append(numbered(10))
        yield running


def failure_of(spark: SparkSession, service: LogService, **given: str) -> str:
    """Return what Spark says of a query that has to fail."""
    reader = spark.read.format("tidelog").options(url=service.url, subscribe="t", retries="0")
    with pytest.raises(PySparkException) as refused:
        reader.options(**given).load().collect()
    return str(refused.value)


def last_line(words: str) -> str:
    """Return the last line but the number with which Spark ends all that it says."""
    lines = (line.strip() for line in words.splitlines())
    return [line for line in lines if line and not re.fullmatch(r"SQLSTATE: \w{5}", line)][-1]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"startingOffset": "earliest"},
            "unknown option startingoffset: did you mean startingOffsets?",
        ),
        ({"subscribe": "gone"}, "the service has no topic gone: create it first, or correct"),
        (OFFSETS, "startingOffsets 3 of t-0 lies after its endingOffsets 2"),
        ({"url": "http://127.0.0.1:1"}, "is the service running there?"),
    ],
    ids=["option", "topic", "offsets", "address"],
)
def test_a_mistake_is_the_last_line(
    spark: SparkSession, service: LogService, given: dict[str, str], sentence: str
) -> None:
    """Below Spark's own words and Python's stack it says what is wrong and what to do."""
    assert sentence in last_line(failure_of(spark, service, **given))


def test_refused_credentials_are_the_last_line(spark: SparkSession, service: LogService) -> None:
    """With the service's own reason, and the option to set."""
    service.fault = lambda _path: Reply.of_json(401, code="unauthenticated", detail="unknown key")
    told = last_line(failure_of(spark, service, token="tl_of-nobody"))
    assert "refuses the credentials (401 unauthenticated: unknown key): set the option" in told


@pytest.fixture
def damaged(service: LogService) -> LogService:
    """The service with a batch after its ten records in which one bit is flipped."""
    poisoned = bytearray(encode(numbered(5)))
    poisoned[-1] ^= 4
    service.topics["t"][0].append_raw(bytes(poisoned), 5)
    return service


DAMAGE = "damaged batch in topic t, partition 0, at offset 10: crc 0x"


def test_a_damaged_batch_is_told_by_topic_partition_and_offset(
    spark: SparkSession, damaged: LogService
) -> None:
    """From a task, in the last line as well.

    No record of it is delivered, and none of it is passed over in silence.
    """
    told = last_line(failure_of(spark, damaged, checkCrcs="true"))
    assert told.startswith(f"pyspark_tidelog.errors.DamagedBatchError: {DAMAGE}")


def test_of_a_streams_failure_spark_tells_more_and_the_sentence_can_be_had(
    spark: SparkSession, damaged: LogService, tmp_path: Path
) -> None:
    """Spark appends the state and the plan of the query to the words of any source."""
    options = {"url": damaged.url, "subscribe": "t", "startingOffsets": "earliest"}
    records = spark.readStream.format("tidelog").options(**options, checkCrcs="true").load()
    query = records.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException) as failed:
        query.trigger(availableNow=True).start().awaitTermination(120)
    assert "=== Streaming Query ===" in str(failed.value).partition(DAMAGE)[2]
    words = root_cause(str(failed.value))
    assert words.sentence.startswith(DAMAGE)
    assert words.is_permanent


def test_why_a_write_failed_is_the_last_line(spark: SparkSession) -> None:
    """Not that it could not be aborted either, which Spark would tell instead."""
    frame = spark.range(1).selectExpr("'x' AS value")
    nobody = {"url": "http://127.0.0.1:1", "topic": "t", "retries": "0"}
    with pytest.raises(PySparkException) as refused:
        frame.write.format("tidelog").mode("append").options(**nobody).save()
    told = last_line(str(refused.value))
    assert told.startswith(
        "pyspark_tidelog.errors.ServiceError: no response from http://127.0.0.1:1"
    )
    assert told.endswith("is the service running there?")
