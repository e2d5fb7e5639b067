"""What a real broker wrote is decoded as a real consumer read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.records.columns import spark_schema
from pyspark_tidelog.records.decode import Decoder
from tests.support.golden import golden_expected, golden_partitions, golden_records

ALL = tuple(spark_schema(include_headers=True).fieldNames())
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def decoded(directory: Path) -> list[Row]:
    """Return the records of the partition's log files, times as milliseconds."""
    start = golden_expected(directory)["log_start_offset"]
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    topic, _, partition = directory.name.rpartition("-")
    log = TopicPartition(topic, int(partition))
    decoder = Decoder(log, ALL, 1 << 62, check_crcs=True)
    return [
        (
            row["offset"],
            (row["timestamp"] - EPOCH) // timedelta(milliseconds=1),
            row["timestampType"] + 1,  # the consumer that was asked counts from 1
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for batch in decoder.decode(data, decoder.frames(data, 0), start)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("directory", golden_partitions("clean"), ids=lambda path: path.name)
def test_every_partition_decodes_to_what_a_consumer_got(directory: Path) -> None:
    """All codecs in every framing, control batches, append times, null and binary fields."""
    assert decoded(directory) == [
        (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers)
        for r in golden_records(directory)
    ]
