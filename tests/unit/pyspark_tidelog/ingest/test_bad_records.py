"""Places of bad records, as far as they need no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.ingest.bad_records import BadRecordsTable, BadRecordsTopic
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.tables import delta
from pyspark_tidelog.tables.delta import DeltaTable
from pyspark_tidelog.tables.parquet_files import FileWriter, NewFile
from pyspark_tidelog.tables.table import Batch
from pyspark_tidelog.tables.target import parse_target


class BadRows:
    """Stands for a data frame: two records that do not fit, which tasks write here and now."""

    schema = StructType([StructField("offset", LongType()), StructField("reason", StringType())])

    def write(self, writer: FileWriter) -> tuple[NewFile, ...]:
        rows = {"offset": pa.array([7, 9], pa.int64()), "reason": ["no JSON", "Expected `int`"]}
        return tuple(writer.write(iter([pa.record_batch(rows)])))


def test_a_table_counts_the_records_of_a_micro_batch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated micro-batch adds none and counts none; one of another plan is refused."""
    monkeypatch.setattr(delta, "write_on_executors", lambda rows, writer: rows.write(writer))
    table = DeltaTable(parse_target(f"delta:{tmp_path}/bad"))
    rows: Any = BadRows()
    place = BadRecordsTable(table)
    batch = Batch("job", 3, plan=7, run=1)
    assert [place.add(rows, batch) for _ in range(2)] == [2, 0]
    (found,) = table.batches(BadRows.schema)
    assert found.to_pydict() == {"offset": [7, 9], "reason": ["no JSON", "Expected `int`"]}
    with pytest.raises(JobError, match="micro-batch 3 with other offsets"):
        place.add(rows, batch._replace(plan=8))


def test_a_topic_is_written_with_the_credentials_of_the_job_and_nothing_else() -> None:
    """Options of the source would be refused by the sink; the token is not for people."""
    job = IngestJob(
        "http://x",
        "t",
        "parquet:/lake",
        "/state",
        include_headers=True,
        options=(("token", "secret"), ("fetchBytes", "1000"), ("timeout", "5")),
    )
    place = BadRecordsTopic.of("dead", job, "parquet:/lake")
    assert place.options == {"url": "http://x", "token": "secret", "timeout": "5"}
    assert (place.topic, "secret" in repr(place)) == ("dead", False)
