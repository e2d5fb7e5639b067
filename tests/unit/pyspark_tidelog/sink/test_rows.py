"""What a writer refuses before it writes, and what the columns become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from pyspark_tidelog.data_source import TidelogDataSource
from pyspark_tidelog.errors import OptionError, TidelogError
from pyspark_tidelog.records.encode import encode_headers
from pyspark_tidelog.sink.options import WriteOptions
from pyspark_tidelog.sink.rows import records_of

URL = {"url": "http://127.0.0.1:1"}


def schema_of(columns: str) -> StructType:
    """Return the schema of a few columns, without the JVM that Spark's own parser needs."""
    types = {"BIGINT": LongType(), "INT": IntegerType(), "STRING": StringType()}
    pairs = [column.split() for column in columns.split(", ")]
    return StructType([StructField(name, types[kind]) for name, kind in pairs])


@pytest.mark.parametrize(
    ("columns", "options", "refusal"),
    [
        ("value BIGINT", {"topic": "t"}, "column value must be binary or string, not bigint"),
        ("value STRING", {}, "no topic is given: set the option topic, or write a column topic"),
        ("key STRING", {"topic": "t"}, "a column value is required"),
        ("value STRING, n INT", {"topic": "t"}, "column n cannot be written: rename or drop it"),
        ("value STRING, partition BIGINT", {"topic": "t"}, "column partition must be int"),
        ("value STRING", {"topc": "t"}, "unknown option topc: did you mean topic"),
        ("value STRING", {"topic": "a/b"}, "'a/b' cannot be the name of a topic"),
        ("value STRING", {"topic": "t", "ledger": "t"}, "topic and ledger must be two topics"),
        ("value STRING", {"topic": "t", "compression": "brotli"}, "none, gzip, lz4, zstd"),
        ("value STRING", {"topic": "t", "includeHeaders": "true"}, "is a column headers"),
        ("value STRING", {"topic": "t", "kafka.acks": "all"}, "unknown option kafka.acks"),
        ("value STRING", {"topic": "t", "apiKey": "s"}, "here it is called token"),
        ("value STRING", {"topic": "t", "writeId": "x" * 201}, "1 to 200 bytes of printable"),
        ("value STRING", {"topic": "t", "writeId": ""}, "1 to 200 bytes of printable"),
    ],
)
def test_what_cannot_be_written_is_refused_with_a_sentence(
    columns: str, options: dict[str, str], refusal: str
) -> None:
    """By batch and stream alike, when the writer is made: on the driver, before any task."""
    source = TidelogDataSource({**URL, **options})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(OptionError, match=refusal):
            make(schema_of(columns), overwrite=False)


def test_a_stream_has_no_name_of_its_own() -> None:
    """Its checkpoint has: two names for one thing could disagree."""
    source = TidelogDataSource({**URL, "topic": "t", "writeId": "x"})
    with pytest.raises(OptionError, match="a stream is known by its checkpoint"):
        source.streamWriter(schema_of("value STRING"), overwrite=False)


def test_complete_output_is_refused() -> None:
    """Spark asks for a stream to be overwritten in the output mode complete."""
    source = TidelogDataSource({**URL, "topic": "t"})
    with pytest.raises(OptionError, match="the output mode append or update"):
        source.streamWriter(schema_of("value STRING"), overwrite=True)


def test_what_spark_adds_to_the_options_is_no_option() -> None:
    """A stream's own place and name come with the options of its sink."""
    given = {**URL, "topic": "t", "checkpointLocation": "/c", "queryName": "q", "path": "x"}
    assert WriteOptions.parse(given).topic == "t"


def test_the_option_goes_before_the_column() -> None:
    """As in Kafka's sink; without it every row needs a topic."""
    batch = pa.record_batch({"value": ["a", "b"], "topic": ["x", None]})
    assert records_of(batch, "t")["topic"].to_pylist() == ["t", "t"]
    with pytest.raises(TidelogError, match="column topic is null in a row: set the option topic"):
        records_of(batch, None)


def test_a_row_without_a_time_is_of_now() -> None:
    """And one with a time keeps it, to the millisecond."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    times = pa.array([moment, None], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"value": pa.array(["a", "b"]), "timestamp": times})
    before_ms = int(datetime.now(UTC).timestamp() * 1000)
    given, now = records_of(batch, "t")["timestamp"].to_pylist()
    assert given == 1_767_323_045_678
    assert now >= before_ms
    assert records_of(batch.select(["value"]), "t")["timestamp"].to_pylist()[0] >= before_ms


@pytest.mark.parametrize("given", [None, [], [("h", b"1")]])
def test_headers_are_encoded_only_where_there_are_some(given: Any) -> None:
    """A column that is empty throughout costs nothing."""
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    lists = None if given is None else [{"key": k, "value": v} for k, v in given]
    batch = pa.record_batch(
        {"value": pa.array(["a"]), "headers": pa.array([lists], pa.list_(pair))}
    )
    encoded = records_of(batch, "t").to_pydict().get("headers")
    assert encoded == ([encode_headers(lists)] if given else None)
