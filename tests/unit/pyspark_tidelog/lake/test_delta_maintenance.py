"""Delta tables compacted and vacuumed beside a job and readers."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.compaction import Compacted
from pyspark_tidelog.lake.maintenance import compact_table, vacuum_table
from pyspark_tidelog.tables.delta import DeltaTable
from pyspark_tidelog.tables.target import Target

JOB = "job"


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Four micro-batches of ten rows, a file each."""
    made = DeltaTable(Target("delta", str(tmp_path / "lake")))
    for number in range(4):
        append(made, number)
    return made


def append(table: DeltaTable, number: int) -> None:
    rows = pa.table({"offset": pa.array(range(number * 10, number * 10 + 10), pa.int64())})
    done = CommitProperties(app_transactions=[Transaction(JOB, number)])
    write_deltalake(table.target.place, rows, mode="append", commit_properties=done)


def orphan(table: DeltaTable, name: str, *, hours_old: float = 5) -> Path:
    """A file that no transaction names."""
    path = table.target.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"half")
    then = time.time() - hours_old * 3_600
    os.utime(path, (then, then))
    return path


def offsets(place: str, version: int | None = None) -> list[int]:
    found = deltalake.DeltaTable(place, version=version).to_pyarrow_table()
    return sorted(found["offset"].to_pylist())


def test_files_are_merged_and_the_job_goes_on(table: DeltaTable) -> None:
    """Its transactions are remembered, older versions can be read, a second time does nothing."""
    before = deltalake.DeltaTable(table.target.place).version()
    assert compact_table(table) == Compacted(4, 1)
    assert compact_table(table) == Compacted()
    assert offsets(table.target.place) == offsets(table.target.place, before) == [*range(40)]
    assert deltalake.DeltaTable(table.target.place).transaction_version(JOB) == 3
    append(table, 4)
    assert compact_table(table) == Compacted(2, 1)
    assert compact_table(DeltaTable(Target("delta", f"{table.target.place}-new"))) == Compacted()


def test_what_a_version_in_use_refers_to_stays(table: DeltaTable) -> None:
    """Files that were replaced an hour ago or less, and all of the current version."""
    before = deltalake.DeltaTable(table.target.place).version()
    compact_table(table)
    assert vacuum_table(table, JOB, 1) == 0
    assert offsets(table.target.place, before) == [*range(40)]
    assert vacuum_table(table, JOB, 0) == 4
    assert offsets(table.target.place) == [*range(40)]


def test_the_files_of_a_micro_batch_that_is_being_written_stay(table: DeltaTable) -> None:
    """However long it takes; those of an attempt that was killed go once another has succeeded."""
    killed = orphan(table, "batch-3/a.parquet")
    current = orphan(table, "batch-4/b.parquet", hours_old=50)
    young = orphan(table, "batch-2/c.parquet", hours_old=0)
    assert vacuum_table(table, JOB, 1) == 1
    assert (killed.exists(), current.exists(), young.exists()) == (False, True, True)
    assert vacuum_table(table, "another job", 1) == 0
    append(table, 4)
    assert vacuum_table(table, JOB, 1) == 1
    assert offsets(table.target.place) == [*range(50)]
    assert vacuum_table(DeltaTable(Target("delta", f"{table.target.place}-new")), JOB, 1) == 0


def test_nothing_is_lost_beside_a_job_and_readers(table: DeltaTable) -> None:
    """Micro-batches are added and versions read while files are merged and removed."""
    wrong: list[list[int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen = offsets(table.target.place)
            if seen != [*range(len(seen))] or len(seen) < 40:
                wrong.append(seen)

    def fill() -> None:
        for number in range(4, 24):
            append(table, number)
        done.set()

    threads = [threading.Thread(target=work) for work in (read, fill)]
    for thread in threads:
        thread.start()
    while not done.is_set():
        compact_table(table)
        vacuum_table(table, JOB, 1)
    for thread in threads:
        thread.join()
    assert wrong == []
    compact_table(table)
    assert offsets(table.target.place) == [*range(240)]


def test_a_failure_names_the_table(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many attempts as other transactions may come first."""
    attempts: list[int] = []

    def conflict(*_: object, **__: object) -> None:
        attempts.append(1)
        raise deltalake.exceptions.CommitFailedError("a transaction came first")

    monkeypatch.setattr(deltalake.table.TableOptimizer, "compact", conflict)
    with pytest.raises(JobError, match="lake cannot be compacted: a transaction came first"):
        compact_table(table)
    assert len(attempts) == 5
    monkeypatch.setattr(deltalake.DeltaTable, "vacuum", conflict)
    with pytest.raises(JobError, match="lake cannot be vacuumed: a transaction came first"):
        vacuum_table(table, JOB, 1)
