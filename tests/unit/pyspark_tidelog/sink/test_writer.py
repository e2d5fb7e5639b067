"""What the writers refuse, on the driver and before any task."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from pyspark_tidelog.data_source import TidelogDataSource
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.sink.options import WriteOptions

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
