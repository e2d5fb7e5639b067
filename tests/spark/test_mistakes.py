"""What goes wrong is one sentence, the last of Spark's exception that is not Spark's own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_tidelog.telling import telling_words
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
        ({"subscribe": "gone"}, "the service has no topic gone: create it first, or mend"),
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


def test_a_damaged_batch_is_told_by_topic_partition_and_offset(
    spark: SparkSession, service: LogService
) -> None:
    """From a task, behind whose Python words Spark puts a stack of Java: ours are the last of us.

    No record of it is delivered, and none of it is passed over in silence.
    """
    poisoned = bytearray(encode(numbered(5)))
    poisoned[-1] ^= 4
    service.topics["t"][0].append_raw(bytes(poisoned), 5)
    words = telling_words(failure_of(spark, service, checkCrcs="true"))
    assert words.sentence.startswith("damaged batch in topic t, partition 0, at offset 10: crc 0x")
    assert words.is_lasting
