"""Opens a table of any kind by its target."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.tables.folders import FolderTable
from pyspark_tidelog.tables.table import Table
from pyspark_tidelog.tables.target import Target


def open_table(target: Target, partition_by: Sequence[str] = ()) -> Table:
    """Return the table; raise OptionError if a package for its kind is missing.

    `partition_by` are the columns by which a new table is partitioned.
    """
    if target.kind == "delta":
        require_delta()
        from pyspark_tidelog.tables.delta import DeltaTable  # noqa: PLC0415 -- an extra

        return DeltaTable(target, tuple(partition_by))
    return FolderTable(target, tuple(partition_by))


def require_delta() -> None:
    """Raise OptionError if delta-rs is not installed."""
    try:
        import deltalake  # noqa: F401, PLC0415 -- checks whether it is installed
    except ImportError as error:
        raise OptionError(
            "delta: needs delta-rs: run pip install 'pyspark-tidelog[delta]'"
        ) from error
