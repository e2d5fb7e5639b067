"""The end of a Delta table's log, for a job that appends to the table.

An append has to know the table's columns and what its own job has committed, but not its files.
delta-rs reads the log's checkpoint at each commit: 11 µs for each file that was added in the last
week, 110 ms after 10,000 micro-batches. So the entries of appends are read and written here, as
Delta's protocol says (PROTOCOL.md in delta-io/delta); delta-rs does everything else.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import deltalake
from deltalake.exceptions import DeltaError

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.tables.durable_files import sync_file, sync_folder, sync_tree
from pyspark_tidelog.tables.parquet_files import NewFile
from pyspark_tidelog.tables.storage import Storage, sentence_of
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
