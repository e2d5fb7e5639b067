"""Delta tables: Spark writes the Parquet files, delta-rs commits them, without a jar.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.tables.durable_files import sync_folder, sync_tree
from pyspark_tidelog.tables.folders import WRITING, files_below, write_files
from pyspark_tidelog.tables.places import FolderPlace
from pyspark_tidelog.tables.table import Batch, DataFile, Staged
from pyspark_tidelog.tables.target import Target

_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table that one job writes."""

    target: Target
    partition_by: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.target.folder

    @property
    def place(self) -> FolderPlace:
        return FolderPlace(self.folder)

    def has(self, batch: Batch) -> bool:
        table = self.current()
        last = None if table is None else table.transaction_version(batch.job_id)
        return last is not None and batch.number <= last

    def stage(self, rows: DataFrame, batch: Batch) -> Staged:
        folder = self.folder / WRITING / f"batch_id={batch.number}"
        count = write_files(rows, "parquet", folder, self.partition_by)
        return Staged(batch, count, rows.schema, folder)

    def publish(self, staged: Staged) -> None:
        """Move the files into the table, then commit them."""
        assert staged.folder is not None, "the files are in a folder of their own"
        batch = staged.batch
        # A unique name, so that files left by a crashed attempt are never taken for these.
        data = self.folder / f"batch_id={batch.number}-{uuid.uuid4().hex[:12]}"
        actions: list[AddAction | RemoveAction] = list(_moved(staged.folder, data))
        sync_folder(self.folder)
        schema = Schema.from_json(staged.schema.json())
        table = self.current() or deltalake.DeltaTable.create(
            self.folder, schema, partition_by=list(self.partition_by)
        )
        try:
            table.create_write_transaction(
                actions,
                "append",
                schema,
                partition_by=list(self.partition_by),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(batch.job_id, batch.number)]
                ),
            )
        except DeltaError as error:
            shutil.rmtree(data, ignore_errors=True)
            raise JobFailed(f"the transaction on {self.folder} failed: {error}") from error
        sync_tree(self.folder / _LOG)
        sync_folder(self.folder)
        shutil.rmtree(self.folder / WRITING, ignore_errors=True)

    def files(self) -> Iterator[DataFile]:
        table = self.current()
        if table is None:
            return
        added = pa.table(table.get_add_actions(flatten=False)).select(["path", "size_bytes"])
        for row in added.to_pylist():
            yield DataFile(row["path"], row["size_bytes"])

    def batches(self, columns: StructType) -> Iterator[pa.RecordBatch]:
        table = self.current()
        if table is not None:
            yield from table.to_pyarrow_dataset().to_batches(columns=columns.fieldNames())

    def current(self) -> deltalake.DeltaTable | None:
        """Return the current version of the table, or None if there is none yet."""
        try:
            return deltalake.DeltaTable(self.folder)
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
