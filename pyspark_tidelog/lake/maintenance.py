"""Compacts and vacuums a table of any kind, beside its job and its readers."""

from __future__ import annotations

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.lake.compaction import (
    TARGET_BYTES,
    Compacted,
    compact_folders,
    vacuum_folders,
)
from pyspark_tidelog.tables.table import Table


def compact_table(
    table: Table, target_bytes: int = TARGET_BYTES, *, is_job: bool = False
) -> Compacted:
    """Merge small files; raise JobError if that fails.

    `is_job` says that the table's job itself asks for it, between two micro-batches.
    """
    _refuse_iceberg(table)
    if table.target.kind != "delta":
        return compact_folders(table.target.kind, table.target.folder, target_bytes, is_job=is_job)
    from pyspark_tidelog.lake.delta_maintenance import compact_delta  # noqa: PLC0415 -- an extra
    from pyspark_tidelog.tables.delta import DeltaTable  # noqa: PLC0415 -- the same

    assert isinstance(table, DeltaTable), "the kind says so"
    return compact_delta(table, target_bytes)


def vacuum_table(table: Table, job_id: str, hours: int) -> int:
    """Remove unused files, and return how many; raise JobError if that fails."""
    _refuse_iceberg(table)
    if table.target.kind != "delta":
        return vacuum_folders(table.target.folder)
    from pyspark_tidelog.lake.delta_maintenance import vacuum_delta  # noqa: PLC0415 -- an extra
    from pyspark_tidelog.tables.delta import DeltaTable  # noqa: PLC0415 -- the same

    assert isinstance(table, DeltaTable), "the kind says so"
    return vacuum_delta(table, job_id, hours)


def _refuse_iceberg(table: Table) -> None:
    if table.target.kind == "iceberg":
        raise OptionError(
            f"{table.target}: PyIceberg cannot rewrite data files; compact and vacuum the table "
            f"with the procedures of Spark, Trino or the catalog"
        )
