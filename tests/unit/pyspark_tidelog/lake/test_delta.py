"""A Delta table: what is on disk before the log of the table names it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from pyspark_tidelog.lake.delta import DeltaSink, open_table
from tests.support.disk_calls import disk_calls


def test_the_files_and_their_names_are_on_disk_before_the_transaction(tmp_path: Path) -> None:
    """And the transaction is before the micro-batch counts as published."""
    rows = pa.table({"offset": pa.array([1, 2], pa.int64())})
    staging = tmp_path / "_writing" / "batch_id=0"
    staging.mkdir(parents=True)
    pq.write_table(rows, staging / "part-0.parquet")
    sink = DeltaSink(tmp_path, "job", _schema=Schema.from_arrow(rows.schema))
    with disk_calls() as calls:
        sink.publish(0)
    table = open_table(tmp_path)
    assert table is not None
    (data,) = tmp_path.glob("batch_id=0-*")
    made = [call.replace(data.name, "DATA") for call in calls.below(tmp_path)]
    log = ["sync _delta_log", "sync ."]
    assert made[:3] == ["rename DATA/part-00000.parquet", "sync DATA", "sync ."]
    assert made[-3:] == [*log, "remove _writing"]
    synced = {call.split()[1] for call in made[3:-3]}
    assert synced == {f"_delta_log/{file.name}" for file in (tmp_path / "_delta_log").iterdir()}
