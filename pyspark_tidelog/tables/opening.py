"""Opens a table of any kind by its target."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.tables.folders import FolderTable
from pyspark_tidelog.tables.table import Table
from pyspark_tidelog.tables.target import Target


def open_table(target: Target, partition_by: Sequence[str] = ()) -> Table:
    """Return the table; raise OptionError if a package for its kind is missing.

    `partition_by` are the columns by which a new table is partitioned.
    """
    if target.kind == "iceberg":
        require("pyiceberg", "iceberg")
        from pyspark_tidelog.tables.iceberg import IcebergTable  # noqa: PLC0415 -- an extra

        return IcebergTable(target, tuple(partition_by))
    if target.kind == "delta":
        require("deltalake", "delta")
        from pyspark_tidelog.tables.delta import DeltaTable  # noqa: PLC0415 -- an extra

        return DeltaTable(target, tuple(partition_by))
    return FolderTable(target, tuple(partition_by))


def require(package: str, extra: str) -> None:
    """Raise OptionError if a package is not installed."""
    if find_spec(package) is None:
        raise OptionError(f"{extra}: needs {package}: run pip install 'pyspark-tidelog[{extra}]'")
