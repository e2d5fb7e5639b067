"""Compacts and vacuums a table of any kind, beside its job and its readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark_tidelog.lake.compaction import (
    TARGET_BYTES,
    Compacted,
    compact_folders,
    vacuum_folders,
)
from pyspark_tidelog.tables.table import Table

if TYPE_CHECKING:
    from pyspark_tidelog.tables.delta import DeltaTable
    from pyspark_tidelog.tables.iceberg import IcebergTable


def compact_table(
    table: Table, target_bytes: int = TARGET_BYTES, *, is_job: bool = False
) -> Compacted:
    """Merge small files; raise JobError if that fails.

    `is_job` says that the table's job itself asks for it, between two micro-batches.
    """
    kind = table.target.kind
    if kind == "delta":
        from pyspark_tidelog.lake.delta_maintenance import compact_delta  # noqa: PLC0415 -- an extra

        return compact_delta(cast("DeltaTable", table), target_bytes)
    if kind == "iceberg":
        from pyspark_tidelog.lake.iceberg_maintenance import (  # noqa: PLC0415 -- an extra
            compact_iceberg,
        )

        return compact_iceberg(cast("IcebergTable", table), target_bytes)
    return compact_folders(kind, table.target.folder, target_bytes, is_job=is_job)


def vacuum_table(table: Table, job_id: str, hours: int) -> int:
    """Remove unused files, and return how many; raise JobError if that fails."""
    if table.target.kind == "delta":
        from pyspark_tidelog.lake.delta_maintenance import vacuum_delta  # noqa: PLC0415 -- an extra

        return vacuum_delta(cast("DeltaTable", table), job_id, hours)
    if table.target.kind == "iceberg":
        from pyspark_tidelog.lake.iceberg_maintenance import (  # noqa: PLC0415 -- an extra
            vacuum_iceberg,
        )

        return vacuum_iceberg(cast("IcebergTable", table), job_id, hours)
    return vacuum_folders(table.target.folder)
