"""A Delta table: what is on disk before the log of the table names it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_tidelog.tables.delta import DeltaTable
from pyspark_tidelog.tables.table import Batch, Staged
from pyspark_tidelog.tables.target import Target
from tests.support.disk_calls import disk_calls


def test_the_files_and_their_names_are_on_disk_before_the_transaction(tmp_path: Path) -> None:
    """And the transaction is before the micro-batch counts as published."""
    rows = pa.table({"offset": pa.array([1, 2], pa.int64())})
    staging = tmp_path / "_writing" / "batch_id=0"
    staging.mkdir(parents=True)
    pq.write_table(rows, staging / "part-0.parquet")
    ours = DeltaTable(Target("delta", str(tmp_path)))
    schema = StructType([StructField("offset", LongType())])
    with disk_calls() as calls:
        ours.publish(Staged(Batch("job", 0), 2, schema, staging))
    assert ours.has(Batch("job", 0))
    assert [*ours.files()] != []
    (data,) = tmp_path.glob("batch_id=0-*")
    made = [call.replace(data.name, "DATA") for call in calls.below(tmp_path)]
    log = ["sync _delta_log", "sync ."]
    assert made[:3] == ["rename DATA/part-00000.parquet", "sync DATA", "sync ."]
    assert made[-3:] == [*log, "remove _writing"]
    synced = {call.split()[1] for call in made[3:-3]}
    assert synced == {f"_delta_log/{file.name}" for file in (tmp_path / "_delta_log").iterdir()}
