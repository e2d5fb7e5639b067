"""Tables of Parquet and JSON lines: one folder per micro-batch, which appears in one step.

    lake/
        batches=0/batch_id=0/part-....parquet          the first thousand micro-batches
        batches=0/batch_id=1/carrier=AA/part-....parquet
        batches=1000/...
        _tidelog-job.json                              the identity of the job
        _writing/                                      micro-batches that are not published yet

Spark's own streaming file sink is exactly-once only for Spark: after a crash all other readers see
records twice. Here every reader that lists files sees each record once. Compaction replaces a
`batches=` folder in one step; `_merged.json` in it holds the last micro-batch that was merged.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 -- as everywhere in Spark
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.tables.durable_files import sync_folder, sync_tree
from pyspark_tidelog.tables.json_rows import JsonRows, arrow_type_of
from pyspark_tidelog.tables.places import FolderPlace
from pyspark_tidelog.tables.table import Batch, DataFile, Staged
from pyspark_tidelog.tables.target import Target

GROUP_BATCHES: Final = 1_000
WRITING: Final = "_writing"
MERGED: Final = "_merged.json"

_ROWS: Final = 10_000
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

# Spark's defaults would truncate timestamps to milliseconds and omit null fields (JSON), or use a
# deprecated type for timestamps (Parquet).
_JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timeZone": "UTC",
}
_PARQUET_TIMES: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


class LocalFile(NamedTuple):
    """A file of rows, and the columns in the names of its folders, as text."""

    path: Path
    partition: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class FolderTable:
    """A table of files, one folder per micro-batch."""

    target: Target
    partition_by: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.target.folder

    @property
    def place(self) -> FolderPlace:
        return FolderPlace(self.folder)

    def has(self, batch: Batch) -> bool:
        group = self.folder / group_name(batch.number)
        if batch.number <= merged_through(group):
            return True
        return (group / f"batch_id={batch.number}").exists()

    def stage(self, rows: DataFrame, batch: Batch) -> Staged:
        """Write the micro-batch under `_writing`, and sync it."""
        folder = self._staging(batch)
        return Staged(
            batch, write_files(rows, self.target.kind, folder, self.partition_by), rows.schema
        )

    def publish(self, staged: Staged) -> None:
        """Move the micro-batch's folder into the table in one step."""
        number = staged.batch.number
        group = self.folder / group_name(number)
        if not group.exists():
            group.mkdir()
            sync_folder(self.folder)
        self._staging(staged.batch).rename(group / f"batch_id={number}")
        sync_folder(group)
        shutil.rmtree(self.folder / WRITING, ignore_errors=True)

    def _staging(self, batch: Batch) -> Path:
        return self.folder / WRITING / f"batch_id={batch.number}"

    def files(self) -> Iterator[DataFile]:
        for path, partition in data_files(self.folder):
            name = str(path.relative_to(self.folder))
            yield DataFile(name, path.stat().st_size, partition)

    def batches(self, columns: StructType) -> Iterator[pa.RecordBatch]:
        for file in data_files(self.folder):
            in_name = dict(file.partition)
            held = StructType([each for each in columns.fields if each.name not in in_name])
            rows = _parquet_rows if self.target.kind == "parquet" else _json_rows
            for batch in rows(file.path, held):
                yield _with_partition(batch, in_name, columns)


def _parquet_rows(path: Path, columns: StructType) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(_ROWS, columns=columns.fieldNames())


def _json_rows(path: Path, columns: StructType) -> Iterator[pa.RecordBatch]:
    rows = JsonRows(columns)
    with path.open("rb") as lines:
        while chunk := [*islice(lines, _ROWS)]:
            fitted = rows.fit(chunk)
            wrong = next((reason for reason in fitted.reasons if reason), None)
            if wrong is not None:
                raise JobError(f"{path} holds a line that no job wrote: {wrong}")
            yield pa.RecordBatch.from_struct_array(fitted.rows)


def _with_partition(
    batch: pa.RecordBatch, in_name: Mapping[str, str | None], columns: StructType
) -> pa.RecordBatch:
    """Add the columns whose values are in the names of folders."""
    for name in columns.fieldNames():
        if name in in_name:
            data_type = arrow_type_of(columns[name].dataType)
            constant = pa.scalar(in_name[name], pa.string()).cast(data_type)
            batch = batch.append_column(name, pa.repeat(constant, batch.num_rows))
    return batch


def write_files(rows: DataFrame, kind: str, folder: Path, partition_by: Iterable[str]) -> int:
    """Let Spark write the rows into a folder, remove Hadoop's own files from it, and sync it.

    Returns the number of rows.
    """
    seen = Observation()
    rows = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
    rows.sparkSession.conf.set(*_PARQUET_TIMES)
    writer = rows.write.mode("overwrite").format(kind).partitionBy(*partition_by)
    writer.options(**(_JSON_OPTIONS if kind == "json" else {})).save(str(folder))
    for file in folder.rglob("*"):
        if file.is_file() and file.name.startswith(("_", ".")):
            file.unlink()
    sync_tree(folder)
    return int(seen.get["rows"])


def group_name(batch_id: int) -> str:
    """Return the name of the folder that holds a micro-batch's folder."""
    return f"batches={batch_id - batch_id % GROUP_BATCHES}"


def groups_of(folder: Path) -> list[Path]:
    """Return the `batches=` folders of a lake, oldest first."""
    return sorted(folder.glob("batches=*"), key=_number)


def batches_of(group: Path) -> list[Path]:
    """Return the micro-batches in a `batches=` folder, oldest first."""
    return sorted(group.glob("batch_id=*"), key=_number)


def merged_through(group: Path) -> int:
    """Return the last micro-batch that compaction merged in this group, -1 if none."""
    try:
        return int(json.loads((group / MERGED).read_text())["through"])
    except FileNotFoundError:
        return -1
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(f"{group / MERGED} is damaged: {error!r}") from error


def data_files(folder: Path) -> Iterator[LocalFile]:
    """Yield the published files of a lake, in the order of the micro-batches."""
    for group in groups_of(folder):
        for batch in batches_of(group):
            yield from files_below(batch)


def files_below(batch: Path) -> Iterator[LocalFile]:
    """Yield the data files of one micro-batch."""
    for path in sorted(batch.rglob("*")):
        if path.is_file() and not path.name.startswith(("_", ".")):
            yield LocalFile(path, tuple(map(_column, path.relative_to(batch).parts[:-1])))


def _column(folder_name: str) -> tuple[str, str | None]:
    name, _, text = folder_name.partition("=")
    return unquote(name), None if text == _NULL else unquote(text)


def _number(folder: Path) -> int:
    return int(folder.name.rpartition("=")[2])
