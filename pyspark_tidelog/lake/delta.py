"""The sink for Delta tables: Spark writes the Parquet files, delta-rs commits them, without a jar.

Spark writes the files of a micro-batch beside the table; they are moved into it, and one
transaction adds them all. The transaction holds the job's id and the micro-batch's number, so a
repeated micro-batch is recognized. A crash before the transaction leaves files that the table does
not refer to: `tidelog lake compact --vacuum-hours` removes them.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.lake.durable_files import sync_folder, sync_tree
from pyspark_tidelog.lake.folders import WRITING, files_below, write_files

_LOG: Final = "_delta_log"


@dataclass(slots=True)
class DeltaSink:
    """A Delta table that one job writes."""

    folder: Path
    app_id: str
    """The job's id, from its checkpoint; numbers of micro-batches are relative to it."""
    partition_by: tuple[str, ...] = ()
    _schema: Schema | None = field(default=None, repr=False)

    def has(self, batch_id: int) -> bool:
        table = open_table(self.folder)
        last = None if table is None else table.transaction_version(self.app_id)
        return last is not None and batch_id <= last

    def stage(self, rows: DataFrame, batch_id: int) -> None:
        self._schema = Schema.from_json(rows.schema.json())
        write_files(rows, "parquet", self._staging(batch_id), self.partition_by)

    def publish(self, batch_id: int) -> None:
        """Move the files into the table, then commit them."""
        assert self._schema is not None, "a micro-batch is staged before it is published"
        # A unique name, so that files left by a crashed attempt are never taken for these.
        data = self.folder / f"batch_id={batch_id}-{uuid.uuid4().hex[:12]}"
        actions: list[AddAction | RemoveAction] = list(_moved(self._staging(batch_id), data))
        sync_folder(self.folder)
        table = open_table(self.folder) or DeltaTable.create(
            self.folder, self._schema, partition_by=list(self.partition_by)
        )
        try:
            table.create_write_transaction(
                actions,
                "append",
                self._schema,
                partition_by=list(self.partition_by),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(self.app_id, batch_id)]
                ),
            )
        except DeltaError as error:
            shutil.rmtree(data, ignore_errors=True)
            raise JobFailed(f"the transaction on {self.folder} failed: {error}") from error
        sync_tree(self.folder / _LOG)
        sync_folder(self.folder)
        shutil.rmtree(self.folder / WRITING, ignore_errors=True)

    def _staging(self, batch_id: int) -> Path:
        return self.folder / WRITING / f"batch_id={batch_id}"


def open_table(folder: Path) -> DeltaTable | None:
    """Return the current version of the table, or None if there is none yet."""
    try:
        return DeltaTable(folder)
    except TableNotFoundError:
        return None


def _moved(staging: Path, data: Path) -> Iterator[AddAction]:
    """Move the files into the table, and yield the log entry of each.

    Partition values are only in the log: in a folder's name they would have to be escaped, which
    not every reader decodes.
    """
    data.mkdir()
    now_ms = time.time_ns() // 1_000_000
    for number, file in enumerate(files_below(staging)):
        found = pq.read_metadata(file.path)
        target = file.path.rename(data / f"part-{number:05d}.parquet")
        if found.num_rows > 0:
            yield AddAction(
                path=f"{data.name}/{target.name}",
                size=target.stat().st_size,
                partition_values=dict(file.partition),
                modification_time=now_ms,
                data_change=True,
                stats=json.dumps(_statistics(found)),
            )
    sync_folder(data)


def _statistics(found: pq.FileMetaData) -> Mapping[str, object]:
    """Return the number of rows, and the range of offsets by which readers can skip the file."""
    smallest: dict[str, int] = {}
    greatest: dict[str, int] = {}
    for index in range(found.num_columns):
        name = found.schema.column(index).path
        if name not in ("offset", "_offset"):
            continue
        groups = [
            found.row_group(number).column(index).statistics
            for number in range(found.num_row_groups)
        ]
        if all(group is not None and group.has_min_max for group in groups):
            smallest[name] = min(group.min for group in groups)
            greatest[name] = max(group.max for group in groups)
    return {"numRecords": found.num_rows, "minValues": smallest, "maxValues": greatest}


def table_batches(folder: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table."""
    table = open_table(folder)
    if table is not None:
        yield from table.to_pyarrow_dataset().to_batches(columns=columns)
