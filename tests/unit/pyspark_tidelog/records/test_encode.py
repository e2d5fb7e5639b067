"""Columns into batches: what another implementation reads is what was written."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

import crc32c
import pyarrow as pa
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from pyspark_tidelog.errors import TidelogError
from pyspark_tidelog.records.encode import (
    CODECS,
    Producer,
    encode_batch,
    encode_headers,
    in_batches,
)
from tests.support.kafka_batches import decoded
from tests.support.logs import batches_in

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

octets = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), octets), max_size=3)
rows_of_a_batch = st.lists(
    st.tuples(st.integers(0, 1 << 42), octets, octets, headers), min_size=1, max_size=40
)


def records_of(rows: list[Row]) -> pa.RecordBatch:
    lists = [[{"key": name, "value": value} for name, value in row[3]] for row in rows]
    columns = {
        "key": pa.array([row[1] for row in rows], pa.binary()),
        "value": pa.array([row[2] for row in rows], pa.binary()),
        "timestamp": pa.array([row[0] for row in rows], pa.int64()),
    }
    if any(lists):
        columns["headers"] = pa.array([encode_headers(one) for one in lists], pa.binary())
    return pa.record_batch(columns)


@given(rows=rows_of_a_batch, codec=st.sampled_from(CODECS), skip=st.integers(0, 3))
def test_a_batch_reads_back_as_another_implementation_reads_it(
    rows: list[Row], codec: str, skip: int
) -> None:
    """Any times, nulls, headers and codecs, also of the middle of a column."""
    skipped = min(skip, len(rows) - 1)
    part = records_of(rows).slice(skipped)
    batch = encode_batch(part, Producer(7, 0), base_sequence=3, codec=codec)
    assert decoded(batch) == [
        (offset, row[0], 0, row[1], row[2], row[3]) for offset, row in enumerate(rows[skipped:])
    ]


PAGE = Path(__file__).parents[4] / "docs" / "spark.md"
CODECS_OF_THE_PAGE = [
    codec
    for line in re.findall(r"\| `compression` \| (.*) \|", PAGE.read_text())
    for codec in re.findall(r"`(\w+)`", line)
]


@pytest.mark.parametrize("size_bytes", [1, 1_000, 400_000])
@pytest.mark.parametrize("codec", CODECS_OF_THE_PAGE)
def test_the_log_takes_every_codec_of_the_page(codec: str, size_bytes: int) -> None:
    """In frames of one block and of several, which the log decodes as Kafka does."""
    value = random.Random(size_bytes).randbytes(size_bytes)
    rows: list[Row] = [(5, b"k", value, []), (6, None, bytes(size_bytes), [])]
    data = encode_batch(records_of(rows), Producer(7, 0), base_sequence=0, codec=codec)
    (batch,) = batches_in(data)
    assert batch.header.codec.name.lower() == codec
    assert [record.value for record in batch.records()] == [value, bytes(size_bytes)]


def test_every_codec_is_on_the_page() -> None:
    """In the order of Kafka's numbers."""
    assert tuple(CODECS_OF_THE_PAGE) == CODECS


def test_a_batch_belongs_to_a_transaction_of_its_producer() -> None:
    """Producer, epoch, sequence, attribute and checksum are those that a log judges by."""
    data = encode_batch(records_of([(5, b"k", b"v", [])] * 3), Producer(81, 2), base_sequence=9)
    batch = MemoryRecords(data).next_batch()
    assert batch is not None
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (81, 2, 9)
    assert struct.unpack_from(">I", data, 17) == (crc32c.crc32c(data[21:]),)


def test_records_are_cut_where_a_batch_is_full() -> None:
    """In order, none lost, none split; a record larger than a batch stands alone."""
    rows: list[Row] = [(0, None, b"x" * size, []) for size in (100, 100, 5000, 100, 100, 100)]
    parts = list(in_batches(records_of(rows), target_bytes=300))
    assert [len(part) for part in parts] == [2, 1, 2, 1]
    assert [v for part in parts for v in part["value"].to_pylist()] == [row[2] for row in rows]


def test_records_are_taken_with_all_their_columns() -> None:
    """What goes to one partition leaves with its times and headers."""
    rows: list[Row] = [(n, b"%d" % n, b"v", [("h", b"%d" % n)]) for n in range(4)]
    taken = records_of(rows).take(pa.array([3, 1]))
    batch = encode_batch(taken, Producer(1, 0), base_sequence=0)
    assert decoded(batch) == [
        (0, 3, 0, b"3", b"v", [("h", b"3")]),
        (1, 1, 0, b"1", b"v", [("h", b"1")]),
    ]


def test_a_header_without_a_key_is_refused() -> None:
    """The format has no null there."""
    with pytest.raises(TidelogError, match="the key of a header cannot be null"):
        encode_headers([{"key": None, "value": b"x"}])
