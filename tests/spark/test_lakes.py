"""Every sink: filled by the job, compared with the log by the verifier, compacted, filled on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestCompaction, IngestEvent, IngestJob
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.lake.verifier import StoredRows, Verdict
from pyspark_tidelog.tables.opening import open_table
from pyspark_tidelog.tables.target import parse_target
from tests.support.kafka_batches import SentRecord

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark

KINDS = ("parquet", "delta", "json")
START_MS = 1_788_000_000_000

SCHEMA = (
    "id BIGINT NOT NULL, carrier STRING, delay DOUBLE, price DECIMAL(6,2), day DATE, "
    "seen TIMESTAMP, legs ARRAY<STRUCT<`to`: STRING, km: INT>>, tags MAP<STRING,BOOLEAN>"
)
CARRIERS = ("AA", "9E", None, "", "a b/c=d%", "ü")


def flight(number: int) -> SentRecord:
    value = {
        "id": number,
        "carrier": CARRIERS[number % len(CARRIERS)],
        "delay": number / 7,
        "price": 12.25,
        "day": "2013-01-01",
        "seen": f"2013-01-01T05:00:00.{number:06d}Z",
        "legs": [{"to": "LAX", "km": number}, None, {}],
        "tags": {"late": number % 2 == 0, "lost": None},
        "unknown": 1,
    }
    headers = (("trace", b"%d" % number), ("none", None))
    return SentRecord(
        START_MS + number, b"\x00\xff%d" % number, json.dumps(value).encode(), headers
    )


POISON = (b"no JSON", b"[]", b'{"id": "x"}', b'{"id": 1, "price": 12345.678}', b'{"carrier": "AA"}')


class Place:
    """A topic, a lake and the job between them."""

    def __init__(self, folder: Path, tidelog: ServiceProcess, topic: str, kind: str) -> None:
        self.folder = folder / "lake"
        self.checkpoint = str(folder / "checkpoint")
        self.tidelog = tidelog
        self.topic = topic
        self.kind = kind

    def job(self, **more: Any) -> IngestJob:
        given = {"max_offsets_per_trigger": 60, "include_headers": True} | more
        return IngestJob(
            self.tidelog.url, self.topic, f"{self.kind}:{self.folder}", self.checkpoint, **given
        )

    def verdict(self, **more: int) -> Verdict:
        return Lake(str(self.folder)).verify(
            {"url": self.tidelog.url}, checkpoint=self.checkpoint, **more
        )

    def append(self, *records: SentRecord, partition: int = 0) -> None:
        self.tidelog.append(self.topic, list(records), partition=partition)


MakePlace = Callable[[str], Place]


@pytest.fixture
def make_place(tmp_path: Path, tidelog: ServiceProcess, topic: str) -> MakePlace:
    return lambda kind: Place(tmp_path, tidelog, topic, kind)


@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[1:])]
)
def test_records_as_they_are(spark: SparkSession, make_place: MakePlace, kind: str) -> None:
    """Keys, values, headers and nulls of every record are in the lake once, and stay so merged."""
    place = make_place(kind)
    place.append(*map(flight, range(100)))
    place.append(SentRecord(START_MS, None, None), SentRecord(-5, b"", b""), partition=1)
    assert run(place.job(), spark=spark).rows == 102
    assert place.verdict() == Verdict(rows=102)
    done = Lake(str(place.folder)).compact()
    assert done.files_before > done.files_after
    place.append(*map(flight, range(7)), partition=1)
    assert run(place.job(), spark=spark).rows == 7
    assert place.verdict(turn_offsets=10) == Verdict(rows=109)


@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[1:])]
)
def test_few_records_of_many_partitions_are_one_file(
    spark: SparkSession, tidelog: ServiceProcess, tmp_path: Path, topic: str, kind: str
) -> None:
    """One task reads them all, and each of them once."""
    place = Place(tmp_path, tidelog, f"{topic}-wide", kind)
    tidelog.put_topic(place.topic, partitions=50)
    for partition in range(50):
        place.append(*map(flight, range(3)), partition=partition)
    frame = spark.read.format("tidelog").options(url=tidelog.url, subscribe=place.topic).load()
    assert frame.rdd.getNumPartitions() == 1
    assert run(place.job(max_offsets_per_trigger=1_000), spark=spark).rows == 150
    assert place.verdict() == Verdict(rows=150)
    endings = (".parquet", ".jsonl", ".json.gz", ".json")
    files = [path for path in place.folder.rglob("*") if path.name.endswith(endings)]
    data = [
        path for path in files if "_delta_log" not in path.parts and "metadata" not in path.parts
    ]
    assert len([path for path in data if not path.name.startswith("_")]) == 1


@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[1:])]
)
def test_values_in_columns_and_what_does_not_fit_apart(
    spark: SparkSession, make_place: MakePlace, kind: str
) -> None:
    """Types, nulls and odd folder names come back; bad records are kept whole with the reason."""
    place = make_place(kind)
    place.append(*map(flight, range(60)))
    place.append(*(SentRecord(START_MS, b"k", value) for value in POISON))
    place.append(SentRecord(START_MS, b"k", None), partition=1)
    partition_by = ("carrier", "hour=hour(_timestamp)")
    job = place.job(
        schema=SCHEMA,
        partition_by=partition_by,
        bad_records=f"parquet:{place.folder / '_bad'}",
    )
    report = run(job, spark=spark)
    assert (report.rows, report.quarantined) == (66, 5)
    assert report.with_unknown_fields == 60
    assert place.verdict() == Verdict(rows=66, quarantined=5)
    files = sorted((place.folder / "_bad").rglob("batch_id=*/*.parquet"))
    bad = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert sorted((row["offset"], row["value"]) for row in bad) == [*enumerate(POISON, 60)]
    reasons = {row["offset"]: row["reason"] for row in bad}
    assert reasons[62] == "Expected `int`, got `str` - at `$.id`"
    Lake(str(place.folder)).compact()
    assert place.verdict() == Verdict(rows=66, quarantined=5)


@pytest.mark.parametrize(
    "kind", ["delta", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("parquet", "json"))]
)
def test_fields_that_the_schema_does_not_have_are_counted_and_kept(
    spark: SparkSession, make_place: MakePlace, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The job says which they are; from then on it keeps them, if it is told a column."""
    place = make_place(kind)
    place.append(*map(flight, range(3)), SentRecord(START_MS, b"k", b'{"id": 3}'))
    job = place.job(schema=SCHEMA)
    report = run(job, spark=spark)
    assert (report.rows, report.with_unknown_fields) == (4, 3)
    assert "3 record(s) have fields that the schema does not have, such as /unknown;" in caplog.text
    odd = {"id": 5, "größe": [1.5, {"x": None}], "legs": [{"to": "LAX", "gate/no": "A1"}]}
    place.append(SentRecord(START_MS, b"k", json.dumps(odd).encode()))
    caplog.clear()
    report = run(replace(job, rescue="_more"), spark=spark)
    assert (report.rows, report.with_unknown_fields) == (1, 1)
    assert caplog.text == ""
    assert place.verdict() == Verdict(rows=5)
    table = open_table(parse_target(job.to))
    columns = parse_schema("id BIGINT, _more STRING")
    found = [
        row
        for batch in StoredRows(table, columns, ("_more",)).batches(["id", "_more"])
        for row in batch.to_pylist()
    ]
    assert {row["id"]: row["_more"] for row in found} == {
        **dict.fromkeys(range(4)),
        5: '{"/größe":[1.5,{"x":null}],"/legs/0/gate~1no":"A1"}',
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_merges_its_small_files_itself(
    spark: SparkSession, make_place: MakePlace, kind: str
) -> None:
    """After each micro-batch here; the next ones are added to what was merged, once."""
    place = make_place(kind)
    place.append(*map(flight, range(100)))
    told: list[IngestEvent] = []
    job = place.job(max_offsets_per_trigger=20, compact_every_s=0.001)
    assert run(job, told.append, spark=spark).rows == 100
    merged = [event for event in told if isinstance(event, IngestCompaction)]
    assert len(merged) == 5
    assert {(event.files_before, event.files_after) for event in merged[1:]} == {(2, 1)}
    assert [event.error for event in merged] == [None] * 5
    assert place.verdict() == Verdict(rows=100)
    assert len([*open_table(parse_target(job.to)).files()]) == 1
    assert run(job, spark=spark).rows == 0


def test_a_bad_record_stops_the_job_until_it_is_told_where_to_put_it(
    spark: SparkSession, make_place: MakePlace, tidelog: ServiceProcess, topic: str
) -> None:
    """Nothing of its micro-batch is published; then all of it is, and the record is in a topic."""
    place = make_place("parquet")
    place.append(*map(flight, range(5)), SentRecord(START_MS, b"k", b"poison"), flight(6))
    job = place.job(schema="id BIGINT", max_offsets_per_trigger=100)
    with pytest.raises(
        JobFailed, match="partition 0, offset 5 does not fit the schema: "
    ) as failed:
        run(job, spark=spark)
    assert failed.value.is_permanent
    assert "1 record(s) of this micro-batch do not" in str(failed.value)
    assert [*place.folder.glob("batches=*")] == []
    dead = f"{topic}-dead"[-200:]
    tidelog.put_topic(dead)
    told = replace(job, bad_records=f"topic:{dead}")
    for _ in range(2):
        report = run(told, spark=spark)
    assert (report.rows, report.batches) == (0, 0)
    assert place.verdict().is_same
    options = {"url": tidelog.url, "subscribe": dead, "includeHeaders": "true"}
    options |= {"isolation.level": "read_committed"}
    (row,) = spark.read.format("tidelog").options(**options).load().collect()
    headers = {header["key"]: bytes(header["value"] or b"") for header in row["headers"]}
    assert (row["key"], row["value"]) == (b"k", b"poison")
    assert headers["__connect.errors.offset"] == b"5"
    assert headers["__connect.errors.topic"] == topic.encode()
    assert b"JSON" in headers["__connect.errors.exception.message"]
