"""Delta tables: Spark's tasks write the Parquet files, delta-rs commits them, without a jar.

The files of a micro-batch have names that no other attempt uses, and one transaction adds them all.
The transaction holds the job's id and the micro-batch's number, so a repeated micro-batch is
recognized, and of two drivers that commit the same one the second is refused. It holds the number
of the job's run, too: a driver that was paused and replaced cannot commit. A crash before the
transaction leaves files that the table does not refer to: `tidelog lake vacuum` removes them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.tables.durable_files import sync_file, sync_folder, sync_tree
from pyspark_tidelog.tables.json_rows import arrow_type_of
from pyspark_tidelog.tables.parquet_files import (
    BATCH_FOLDER,
    FileWriter,
    NewFile,
    write_on_executors,
)
from pyspark_tidelog.tables.places import FolderPlace, ObjectPlace, Place
from pyspark_tidelog.tables.storage import Storage, sentence_of
from pyspark_tidelog.tables.table import (
    Batch,
    DataFile,
    Staged,
    refuse_other_plan,
    refuse_replaced_run,
)
from pyspark_tidelog.tables.target import Target, is_remote

_LOG: Final = "_delta_log"
_COMMITS: Final = 10  # attempts, each after another transaction came first


@dataclass(slots=True)
class _LastSeen:
    """What this process knows of a table, so that the log is not read again for it."""

    table: deltalake.DeltaTable | None = None
    version: int | None = None
    """The version that `transactions` belongs to."""
    transactions: dict[str, int | None] = field(default_factory=dict)
    """By name: delta-rs looks for each in the whole log."""
    synced_version: int | None = None
    """The last version whose log entry is on disk, once the whole log was synced."""


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table that one job writes."""

    target: Target
    partition_by: tuple[str, ...] = ()
    _seen: _LastSeen = field(default_factory=_LastSeen, compare=False)

    @property
    def place(self) -> Place:
        if is_remote(self.target.place):
            return ObjectPlace(Storage.at(self.target.place))
        return FolderPlace(self.target.folder)

    def has(self, batch: Batch) -> bool:
        return self._holds(self.current(), batch)

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
        schema = Schema.from_json(staged.schema.json())
        self._sync_files(staged)
        try:
            self._commit(staged, schema)
        except (DeltaError, OSError) as error:
            raise JobFailed(
                f"the transaction on {self.target} failed: {sentence_of(error)}"
            ) from error
        if not is_remote(self.target.place):
            self._sync_log()
            sync_folder(self.target.folder)

    def _sync_log(self) -> None:
        """Sync the log's new entries: all of them at first, in case an earlier job was killed."""
        seen = self._seen
        assert seen.table is not None, "it was just committed to"
        log, version = self.target.folder / _LOG, seen.table.version()
        synced, seen.synced_version = seen.synced_version, None  # all of them after a failure, too
        if synced is None:
            sync_tree(log)
        else:
            new = range(synced + 1, version + 1)
            names = [f"{number:020}.json" for number in new]
            checkpoints = [each for number in new for each in log.glob(f"{number:020}.checkpoint*")]
            for file in [*(log / name for name in names), *checkpoints, log / "_last_checkpoint"]:
                with suppress(FileNotFoundError):  # a later checkpoint may have replaced entries
                    sync_file(file)
            sync_folder(log)
        seen.synced_version = version

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
        """Return the current version of the table, or None if there is none yet.

        Only log entries that are new since the last call are read: delta-rs reads all since the
        last checkpoint, a hundred of them, each time that it opens a table.
        """
        seen = self._seen
        # Without the entry of its version the table was removed, or created again.
        if seen.table is not None and self._has_entry(seen.table.version()):
            with suppress(DeltaError):  # entries since were removed, after a checkpoint
                seen.table.update_incremental()
                return seen.table
        seen.table = seen.version = None  # another table may reach the same version
        try:
            seen.table = deltalake.DeltaTable(self.target.place)
        except TableNotFoundError:
            return None
        return seen.table

    def _remember(self, table: deltalake.DeltaTable, batch: Batch) -> None:
        """Take over a commit of this table, so that nobody has to look for it in the log."""
        version = table.version()
        table.update_incremental()
        if table.version() == version + 1:  # else another driver may have come after it
            known = self._transactions_of(table)
            known.update({one.app_id: one.version for one in _transactions(batch)})

    def _transaction(self, table: deltalake.DeltaTable, name: str) -> int | None:
        known = self._transactions_of(table)
        if name not in known:
            known[name] = table.transaction_version(name)
        return known[name]

    def _transactions_of(self, table: deltalake.DeltaTable) -> dict[str, int | None]:
        """Return what is known of the present version; a compaction may have changed it, too."""
        seen = self._seen
        if seen.version != table.version():
            seen.version, seen.transactions = table.version(), {}
        return seen.transactions

    def _holds(self, table: deltalake.DeltaTable | None, batch: Batch) -> bool:
        """Whether it is there; JobError for another plan, or a run that was replaced."""
        last = None if table is None else self._transaction(table, batch.job_id)
        if table is None or last is None:
            return False
        refuse_replaced_run(batch, self._transaction(table, _run_id(batch)))
        if batch.number > last:
            return False
        if batch.number == last:
            refuse_other_plan(batch, self._transaction(table, _plan_id(batch)))
        return True

    def _has_entry(self, version: int) -> bool:
        name = f"{_LOG}/{version:020}.json"
        if is_remote(self.target.place):
            return Storage.at(self.target.place).load(name) is not None
        return (self.target.folder / name).exists()

    def _sync_files(self, staged: Staged) -> None:
        """Sync the names of local files; the tasks have synced their contents."""
        if not is_remote(self.target.place):
            for folder in {Path(self.target.place, file.path).parent for file in staged.files}:
                sync_folder(folder)
            sync_folder(self.target.folder)

    def _commit(self, staged: Staged, schema: Schema) -> None:
        batch = staged.batch
        if (table := self.current()) is None:
            deltalake.DeltaTable.create(
                self.target.place, schema, partition_by=list(self.partition_by), mode="ignore"
            )
            table = self.current()
        actions: list[AddAction | RemoveAction] = [
            _added(file, self.partition_by) for file in staged.files
        ]
        for attempt in range(_COMMITS):
            assert table is not None, "it was created"
            if self._holds(table, batch):
                return  # another driver, or an attempt whose answer was lost
            _add_columns(table, schema)
            try:
                table.create_write_transaction(
                    actions,
                    "append",
                    schema,
                    partition_by=list(self.partition_by),
                    commit_properties=CommitProperties(app_transactions=_transactions(batch)),
                )
            except CommitFailedError:
                if attempt == _COMMITS - 1:
                    raise
                table = self.current()
            else:
                self._remember(table, batch)
                return


def _transactions(batch: Batch) -> list[Transaction]:
    return [
        Transaction(batch.job_id, batch.number),
        Transaction(_plan_id(batch), batch.plan),
        Transaction(_run_id(batch), batch.run),
    ]


def _plan_id(batch: Batch) -> str:
    return f"{batch.job_id}/plan"


def _run_id(batch: Batch) -> str:
    return f"{batch.job_id}/run"


def _add_columns(table: deltalake.DeltaTable, schema: Schema) -> None:
    """Add the columns that the table does not have yet."""
    known = {each.name for each in table.schema().fields}
    new: list[Field] = [each for each in schema.fields if each.name not in known]
    if new:
        table.alter.add_columns(new)


def _added(file: NewFile, partition_by: tuple[str, ...]) -> AddAction:
    """Return the log entry of a file."""
    values = (None if value in {None, ""} else str(value) for value in file.key)
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(zip(partition_by, values, strict=True)),
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        # No ranges of values: with those of some columns alone, delta-rs' data set for PyArrow
        # drops the rows that a filter on any other column lets through.
        stats=json.dumps({"numRecords": file.metadata.num_rows}),
    )
