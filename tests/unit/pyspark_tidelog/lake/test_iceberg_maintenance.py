"""Iceberg tables compacted and vacuumed beside a job and readers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as CatalogTable
from pyiceberg.utils.config import Config

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.compaction import Compacted
from pyspark_tidelog.lake.maintenance import compact_table, vacuum_table
from pyspark_tidelog.tables.iceberg import BATCH, IcebergTable, current, without_retries
from pyspark_tidelog.tables.target import parse_target

JOB = "job"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergTable:
    """Four micro-batches of ten rows in two partitions, a file each."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read when it was imported
    made = IcebergTable(parse_target("iceberg:lake.web.clicks"))
    made.place.store("mine")
    with loaded(made).update_schema() as schema:
        schema.union_by_name(pa.schema([("offset", pa.int64()), ("partition", pa.int32())]))
    with loaded(made).update_spec() as spec:
        spec.add_identity("partition")
    for number in range(4):
        append(made, number)
    return made


def loaded(table: IcebergTable) -> CatalogTable:
    found = current(table.target)
    assert found is not None
    return found


def append(table: IcebergTable, number: int) -> None:
    places = pa.array(range(number * 10, number * 10 + 10), pa.int64())
    rows = pa.table({"offset": places, "partition": pa.array([number % 2] * 10, pa.int32())})
    with loaded(table).transaction() as transaction:
        transaction.append(rows)
        transaction.set_properties({BATCH: f"{JOB} {number} 7"})


def offsets(table: IcebergTable, snapshot_id: int | None = None) -> list[int]:
    found = loaded(table).scan(snapshot_id=snapshot_id).to_arrow()
    return sorted(found["offset"].to_pylist())


def folder_of(table: IcebergTable) -> Path:
    return Path(loaded(table).location().removeprefix("file://"))


def age(folder: Path) -> None:
    """Make every file five hours old."""
    then = time.time() - 5 * 3_600
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def test_files_are_merged_by_partition(table: IcebergTable) -> None:
    """The micro-batches stay known, older snapshots can be read, a second time does nothing."""
    before = loaded(table).current_snapshot()
    assert before is not None
    assert compact_table(table) == Compacted(4, 2)
    assert compact_table(table) == Compacted()
    assert offsets(table) == offsets(table, before.snapshot_id) == [*range(40)]
    assert loaded(table).properties[BATCH] == f"{JOB} 3 7"
    append(table, 4)
    assert compact_table(table) == Compacted(3, 2)
    assert compact_table(table, 1) == Compacted()
    assert offsets(table) == [*range(50)]


def test_what_a_snapshot_in_use_refers_to_stays(table: IcebergTable) -> None:
    """Files of the last hours, and all of the current snapshot however old they are."""
    before = loaded(table).current_snapshot()
    assert before is not None
    compact_table(table)
    age(folder_of(table))
    assert vacuum_table(table, JOB, 1) == 0
    assert offsets(table, before.snapshot_id) == [*range(40)]
    assert vacuum_table(table, JOB, 0) > 4
    assert len(loaded(table).snapshots()) == 1
    assert offsets(table) == [*range(40)]
    append(table, 4)
    assert offsets(table) == [*range(50)]


def test_the_files_of_a_micro_batch_that_is_being_written_stay(table: IcebergTable) -> None:
    """Those of an attempt that was killed go once another has succeeded."""
    data = folder_of(table) / "data"
    for name in ("batch-3/a.parquet", "batch-4/b.parquet"):
        (data / name).parent.mkdir()
        (data / name).write_bytes(b"half")
    assert vacuum_table(table, JOB, 1) == 0
    age(folder_of(table))
    assert vacuum_table(table, JOB, 1) == 1
    assert not (data / "batch-3/a.parquet").exists()
    append(table, 4)
    age(data)
    assert vacuum_table(table, JOB, 1) == 1
    assert offsets(table) == [*range(50)]


def test_a_micro_batch_that_comes_first_is_kept(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compaction is refused, and starts again from what is there then."""
    racing = iter([4, 5])

    def raced(found: CatalogTable) -> CatalogTable:
        number = next(racing, None)
        if number is not None:
            append(table, number)
        return without_retries(found)

    monkeypatch.setattr("pyspark_tidelog.lake.iceberg_maintenance.without_retries", raced)
    assert compact_table(table) == Compacted(6, 2)
    assert offsets(table) == [*range(60)]


def test_a_failure_names_the_table(table: IcebergTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many attempts as other commits may come first; a missing table has no files."""
    attempts: list[int] = []

    def conflict(_self: object) -> None:
        attempts.append(1)
        raise CommitFailedException("a commit came first")

    missing = IcebergTable(parse_target("iceberg:lake.web.none"))
    assert (compact_table(missing), vacuum_table(missing, JOB, 1)) == (Compacted(), 0)
    monkeypatch.setattr(CatalogTable, "transaction", conflict)
    with pytest.raises(JobError, match="clicks cannot be compacted: a commit came first"):
        compact_table(table)
    assert len(attempts) == 5
    monkeypatch.setattr(CatalogTable, "refresh", conflict)
    with pytest.raises(JobError, match="clicks cannot be vacuumed: a commit came first"):
        vacuum_table(table, JOB, 1)
