"""A network in trouble between Spark and the log: dropped, delayed, cut; each record once."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.sink.options import WriteOptions
from pyspark_tidelog.sink.writer import BatchWriter
from pyspark_tidelog.source.batch_reader import BatchReader
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.tasks import OffsetRange
from tests.support.kafka_batches import numbered
from tests.support.proxy import Treatment, proxy_to

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

BATCH_RECORDS = 100
RECORDS = 2_000
PATIENT = {"retries": "100", "timeout": "30"}


def trouble(seed: int) -> Callable[[int], Treatment]:
    """Return treatments that differ from connection to connection, and let something through."""

    def treat(number: int) -> Treatment:
        chance = random.Random(f"{seed}/{number}")
        if chance.random() < 0.2:
            return Treatment(is_refused=True)
        delay_s = 0.002 if chance.random() < 0.2 else 0.0
        return Treatment(cut_after=chance.randrange(1, 60_000), delay_s=delay_s)

    return treat


def fill(tidelog: ServiceProcess, topic: str) -> None:
    for first in range(0, RECORDS, BATCH_RECORDS):
        tidelog.append(topic, numbered(BATCH_RECORDS, size_bytes=300, first=first))


def read_offsets(url: str, topic: str) -> list[int]:
    raw = {"url": url, "subscribe": topic, "fetchBytes": "200000", **PATIENT}
    reader = BatchReader(Options.parse(raw).for_batch(), ["offset"])
    return [
        offset
        for split in reader.partitions()
        for batch in reader.read(split)
        for offset in batch["offset"].to_pylist()
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_reader_gets_each_offset_once_through_a_network_in_trouble(
    tidelog: ServiceProcess, topic: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, however often the connection is refused or breaks inside an answer."""
    monkeypatch.setattr("pyspark_tidelog.client.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("pyspark_tidelog.client.LONGEST_PAUSE_S", 0.002)
    fill(tidelog, topic)
    with proxy_to(tidelog.port, trouble(seed)) as proxy:
        assert read_offsets(proxy.url, topic) == list(range(RECORDS))
    assert proxy.cuts > 5


def test_a_broken_answer_goes_on_after_its_last_whole_batch(
    tidelog: ServiceProcess, topic: str
) -> None:
    """What had arrived whole is not asked for again, what was torn is."""
    fill(tidelog, topic)
    split = OffsetRange(topic, 0, 0, RECORDS)
    with proxy_to(
        tidelog.port, lambda number: Treatment(cut_after=None if number else 100_000)
    ) as proxy:
        reader = BatchReader(
            Options.parse({"url": proxy.url, "subscribe": topic, **PATIENT}).for_batch(), ["offset"]
        )
        rows = sum(batch.num_rows for batch in reader.read(split))
    assert rows == RECORDS
    asked = [int(number) for number in re.findall(rb"[?&]offset=(\d+)", b"".join(proxy.requests))]
    assert asked[0] == 0
    assert asked[1] % BATCH_RECORDS == 0, "between two batches"
    assert 100_000 / 400 < asked[1] < 100_000 / 300, "of records of somewhat more than 300 bytes"


def test_a_writer_writes_each_row_once_through_a_network_in_trouble(
    tidelog: ServiceProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends whose answers were lost are sent again and known; so are markers and notes."""
    monkeypatch.setattr("pyspark_tidelog.client.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("pyspark_tidelog.client.LONGEST_PAUSE_S", 0.002)
    schema = StructType([StructField("value", BinaryType())])
    rows = [
        pa.record_batch({"value": [b"%d" % n for n in range(k, k + 50)]}) for k in range(0, 500, 50)
    ]

    def treat(number: int) -> Treatment:
        return Treatment(
            is_refused=number % 5 == 4,
            cut_after=random.Random(number).randrange(30_000 if number % 3 == 0 else 1500),
        )

    with proxy_to(tidelog.port, treat) as proxy:
        endpoint = Endpoint(proxy.url, retries=100)
        writer = BatchWriter(WriteOptions(endpoint, topic), schema, overwrite=False)
        results = [writer.write(iter([batch])) for batch in rows]
        writer.commit(results)
    assert proxy.cuts > 20
    values = [
        record["value"]
        for partition in range(2)
        for record in tidelog.call(
            "GET",
            f"/v1/topics/{topic}/partitions/{partition}/records?isolation=read_committed",
        )["records"]
    ]
    assert sorted(values) == list(range(500))
