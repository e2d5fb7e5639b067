"""Delta tables: Spark's tasks write the Parquet files, the driver commits them, without a jar.

The files of a micro-batch have names that no other attempt uses, and one transaction adds them all.
The transaction holds the job's id and the micro-batch's number, so a repeated micro-batch is
recognized, and of two drivers that commit the same one the second is refused. It holds the number
of the job's run, too: a driver that was paused and replaced cannot commit. A crash before the
transaction leaves files that the table does not refer to: `tidelog lake vacuum` removes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import deltalake
import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.tables.delta_log import DeltaLog
from pyspark_tidelog.tables.durable_files import sync_folder
from pyspark_tidelog.tables.json_rows import arrow_type_of
from pyspark_tidelog.tables.parquet_files import (
    BATCH_FOLDER,
    FileWriter,
    write_on_executors,
)
from pyspark_tidelog.tables.places import FolderPlace, ObjectPlace, Place
from pyspark_tidelog.tables.storage import Storage, sentence_of, storage_failure
from pyspark_tidelog.tables.table import (
    Batch,
    DataFile,
    Staged,
    refuse_other_plan,
    refuse_replaced_run,
)
from pyspark_tidelog.tables.target import Target, is_remote

_COMMITS: Final = 10  # attempts, each after another transaction came first


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table that one job writes."""

    target: Target
    partition_by: tuple[str, ...] = ()
    _logs: dict[str, DeltaLog] = field(default_factory=dict, compare=False)
    """The log, by the job's id, once it was read."""

    @property
    def place(self) -> Place:
        if is_remote(self.target.place):
            return ObjectPlace(Storage.at(self.target.place))
        return FolderPlace(self.target.folder)

    def has(self, batch: Batch) -> bool:
        log = self._log(batch)
        return log is not None and _holds(log, batch)

    def stage(self, rows: DataFrame, batch: Batch) -> Staged:
        """Let the tasks write the files into the table's folder, where no transaction names them.

        Partition values are in the log and in the names of folders: Polars reads them there.
        """
        storage = Storage.at(self.target.place)
        fields = [(each.name, arrow_type_of(each.dataType)) for each in rows.schema.fields]
        keys = self.partition_by
        writer = FileWriter(
            storage.open_output,
            pa.schema([field for field in fields if field[0] not in keys]),
            f"{BATCH_FOLDER}{batch.number}",
            keys,
            lambda found: [found.column(name) for name in keys],
        )
        files = write_on_executors(rows, writer)
        return Staged(batch, sum(f.metadata.num_rows for f in files), rows.schema, files)

    def publish(self, staged: Staged) -> None:
        """Commit the files."""
        self._sync_files(staged)
        try:
            self._commit(staged)
        except (DeltaError, OSError) as error:
            raise JobFailed(
                f"the transaction on {self.target} failed: {sentence_of(error)}"
            ) from error

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
            rows = table.to_pyarrow_dataset()
            names = [name for name in columns.fieldNames() if name in rows.schema.names]
            yield from rows.to_batches(columns=names)

    def current(self) -> deltalake.DeltaTable | None:
        """Return the current version of the table, or None if there is none yet."""
        try:
            return deltalake.DeltaTable(self.target.place)
        except TableNotFoundError:
            return None

    def _log(self, batch: Batch) -> DeltaLog | None:
        """Return the log, read to its end; None if the table does not exist."""
        known = self._logs.pop(batch.job_id, None)  # after an error it is read again
        if known is None or not known.catch_up():
            try:
                known = DeltaLog(self.target, self.partition_by, _transactions(batch))
            except TableNotFoundError:
                return None
            except DeltaError as error:
                raise storage_failure(self.target, "read", error) from error
        self._logs[batch.job_id] = known
        return known

    def _sync_files(self, staged: Staged) -> None:
        """Sync the names of local files; the tasks have synced their contents."""
        if not is_remote(self.target.place):
            for folder in {Path(self.target.place, file.path).parent for file in staged.files}:
                sync_folder(folder)
            sync_folder(self.target.folder)

    def _commit(self, staged: Staged) -> None:
        batch, schema = staged.batch, Schema.from_json(staged.schema.json())
        for _ in range(_COMMITS):
            log = self._log(batch)
            if log is None:
                deltalake.DeltaTable.create(
                    self.target.place, schema, partition_by=list(self.partition_by), mode="ignore"
                )
            elif _holds(log, batch):
                return  # another driver, or an attempt whose answer was lost
            elif new := [each for each in schema.fields if each.name not in log.columns]:
                deltalake.DeltaTable(self.target.place).alter.add_columns(new)
            elif log.append(staged.files, _transactions(batch)):
                return
        raise JobFailed(
            f"the transaction on {self.target} failed: each of {_COMMITS} attempts came after "
            f"another one"
        )


def _holds(log: DeltaLog, batch: Batch) -> bool:
    """Whether it is there; JobError for another plan, or a run that was replaced."""
    last = log.transactions.get(batch.job_id)
    if last is None:
        return False
    refuse_replaced_run(batch, log.transactions.get(_run_id(batch)))
    if batch.number == last:
        refuse_other_plan(batch, log.transactions.get(_plan_id(batch)))
    return batch.number <= last


def _transactions(batch: Batch) -> dict[str, int]:
    return {batch.job_id: batch.number, _plan_id(batch): batch.plan, _run_id(batch): batch.run}


def _plan_id(batch: Batch) -> str:
    return f"{batch.job_id}/plan"


def _run_id(batch: Batch) -> str:
    return f"{batch.job_id}/run"
