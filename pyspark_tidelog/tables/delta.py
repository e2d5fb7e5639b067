"""Delta tables: Spark's tasks write the Parquet files, the driver commits them, without a jar.

The files of a micro-batch have names that no other attempt uses, and one transaction adds them all.
The transaction holds the job's id and the micro-batch's number, so a repeated micro-batch is
recognized, and of two drivers that commit the same one the second is refused. It holds the number
of the job's run, too: a driver that was paused and replaced cannot commit. A crash before the
transaction leaves files that the table does not refer to: `tidelog lake vacuum` removes them.

An append has to know the table's columns and what its own job has committed, but not its files.
delta-rs reads the log's checkpoint at each commit: 11 µs for each file that was added in the last
week, 110 ms after 10,000 micro-batches. So the entries of appends are read and written here, as
Delta's protocol says (PROTOCOL.md in delta-io/delta); delta-rs does everything else.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import deltalake
import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.tables.durable_files import sync_file, sync_folder, sync_tree
from pyspark_tidelog.tables.json_rows import arrow_type_of
from pyspark_tidelog.tables.parquet_files import (
    BATCH_FOLDER,
    FileWriter,
    NewFile,
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

LOG_FOLDER: Final = "_delta_log"

_LOG = logging.getLogger(__name__)

_HONOURED: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",  # an append without such data is one of inserts
        "checkConstraints",
        "columnMapping",
        "deletionVectors",  # of other writers; new files have none
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""The writer features with which an append is as here, unless the table uses one of the next."""

_NOT_HONOURED: Final = {
    "delta.invariants": "an invariant",
    "delta.constraints.": "a constraint",
    "delta.generationExpression": "a generated column",
    "delta.identity.": "an identity column",
    "delta.columnMapping.id": "mapped columns",
}
"""What makes an append more than that, by its name in the schema or the table's properties."""

_CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"
_FEW: Final = 2_500
"""From twice as many entries on, checkpoints are rarer: each lists all files once more."""

_PLAIN: Final = "!$&'()+,-./:;=@_~"
"""The characters that delta-rs leaves in a path, besides letters and digits."""


class DeltaLog:
    """What one job knows of the log; it belongs to the thread that commits.

    Raises TableNotFoundError if the table does not exist, JobError if it has a feature that an
    append would not respect, and DeltaError, JobFailed or OSError if its log cannot be read. In a
    folder, whatever was read is on disk: a driver may have been killed before it synced what it
    wrote.
    """

    version: int
    transactions: dict[str, int]
    """The last of each application that was asked for, or has committed since."""
    columns: frozenset[str]

    def __init__(self, target: Target, partition_by: tuple[str, ...], names: Iterable[str]) -> None:
        self._target = target
        self._partition_by = partition_by
        self._storage = Storage.at(target.place)
        table = deltalake.DeltaTable(target.place)
        known = {name: table.transaction_version(name) for name in names}
        self.version = table.version()
        self.transactions = {name: last for name, last in known.items() if last is not None}
        protocol, metadata = table.protocol(), table.metadata()
        self._take_protocol({"writerFeatures": protocol.writer_features})
        self._take_metadata(
            {
                "id": metadata.id,
                "schemaString": table.schema().to_json(),
                "partitionColumns": metadata.partition_columns,
                "configuration": metadata.configuration,
            }
        )
        self._last = self._storage.load(_entry(self.version))
        if not is_remote(target.place):
            sync_tree(target.folder / LOG_FOLDER)
            sync_folder(target.folder)

    def catch_up(self) -> bool:
        """Read what others have committed; return False if this is another table by now."""
        if self._last is None or self._storage.load(_entry(self.version)) != self._last:
            return False
        while (data := self._storage.load(_entry(self.version + 1))) is not None:
            if not is_remote(self._target.place):
                sync_file(self._target.folder / _entry(self.version + 1))
                sync_folder(self._target.folder / LOG_FOLDER)
            self._take(data)
        return True

    def append(self, files: Iterable[NewFile], transactions: Mapping[str, int]) -> bool:
        """Commit the files; return False if another entry came first.

        Afterwards the entry is durable.
        """
        added = [{"add": _added(file, self._partition_by)} for file in files]
        data = _lines(
            {
                "commitInfo": {
                    "timestamp": _now_ms(),
                    "operation": "WRITE",
                    "operationParameters": {
                        "mode": "Append",
                        "partitionBy": json.dumps(list(self._partition_by)),
                    },
                    "isBlindAppend": True,
                    "engineInfo": "tidelog",
                }
            },
            *({"txn": {"appId": each, "version": n}} for each, n in transactions.items()),
            *added,
        )
        if not self._storage.create(_entry(self.version + 1), data):
            return False
        self._take(data)
        often = 100 << max((self.version // _FEW).bit_length() - 1, 0)
        if self.version % (self._checkpoint_interval or often) == 0:
            self._checkpoint()
        return True

    def _take(self, data: bytes) -> None:
        """Take over the next entry."""
        try:
            for line in data.splitlines():
                action = json.loads(line)
                if (told := action.get("txn")) is not None:
                    self.transactions[told["appId"]] = told["version"]
                elif (told := action.get("metaData")) is not None:
                    self._take_metadata(told)
                elif (told := action.get("protocol")) is not None:
                    self._take_protocol(told)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise JobFailed(
                f"entry {self.version + 1} of the log of {self._target} is damaged: {error!r}"
            ) from error
        self.version += 1
        self._last = data

    def _take_protocol(self, told: Mapping[str, Any]) -> None:
        if unknown := {*(told.get("writerFeatures") or ())} - _HONOURED:
            self._refuse(f"the table feature {min(unknown)}")

    def _take_metadata(self, told: Mapping[str, Any]) -> None:
        configuration = told.get("configuration") or {}
        for text in (told["schemaString"], *configuration):
            for sign, name in _NOT_HONOURED.items():
                if sign in text:
                    self._refuse(name)
        self.columns = frozenset(
            each["name"] for each in json.loads(told["schemaString"])["fields"]
        )
        if (held := tuple(told["partitionColumns"])) != self._partition_by:
            raise JobError(
                f"{self._target} is partitioned by {held}, and this job's files by "
                f"{self._partition_by}: choose another table"
            )
        interval = configuration.get(_CHECKPOINT_INTERVAL)
        self._checkpoint_interval = None if interval is None else int(interval)

    def _refuse(self, feature: str) -> None:
        raise JobError(
            f"{self._target} has {feature}, which the job's files would not respect: remove it, or "
            f"choose another table"
        )

    def _checkpoint(self) -> None:
        """Let delta-rs write a checkpoint, and remove what it makes superfluous.

        Nothing depends on it: readers take longer without one.
        """
        try:
            table = deltalake.DeltaTable(self._target.place)
            table.create_checkpoint()
            table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            _LOG.warning("%s: no checkpoint was written: %s", self._target, sentence_of(error))
            return
        if not is_remote(self._target.place):
            log = self._target.folder / LOG_FOLDER
            with suppress(FileNotFoundError):  # another driver's checkpoint may have replaced it
                for file in (*log.glob(f"{table.version():020}.*"), log / "_last_checkpoint"):
                    sync_file(file)
            sync_folder(log)


def _entry(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020}.json"


def _lines(*actions: Mapping[str, object]) -> bytes:
    return b"".join(
        json.dumps(each, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for each in actions
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _added(file: NewFile, partition_by: tuple[str, ...]) -> Mapping[str, object]:
    values = (None if value in {None, ""} else str(value) for value in file.key)
    return {
        "path": quote(file.path, safe=_PLAIN),
        "partitionValues": dict(zip(partition_by, values, strict=True)),
        "size": file.size_bytes,
        "modificationTime": _now_ms(),
        "dataChange": True,
        # No ranges of values: with those of some columns alone, delta-rs' data set for PyArrow
        # drops the rows that a filter on any other column lets through.
        "stats": json.dumps({"numRecords": file.metadata.num_rows}),
    }


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
