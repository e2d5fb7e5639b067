"""The sink for Parquet and JSON lines: one folder per micro-batch, which appears in one step.

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

from pyspark.sql import DataFrame

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.durable_files import sync_folder, sync_tree

GROUP_BATCHES: Final = 1_000
WRITING: Final = "_writing"
MERGED: Final = "_merged.json"

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

# Spark's defaults would truncate timestamps to milliseconds and omit null fields (JSON), or use a
# deprecated type for timestamps (Parquet).
_JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timeZone": "UTC",
}
_PARQUET_TIMES: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


class DataFile(NamedTuple):
    """A file of rows, and the columns in the names of its folders, as text."""

    path: Path
    partition: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class FolderSink:
    """A lake of files, one folder per micro-batch."""

    kind: str
    """`parquet` or `json`."""
    folder: Path
    partition_by: tuple[str, ...] = ()

    def has(self, batch_id: int) -> bool:
        group = self.folder / group_name(batch_id)
        return batch_id <= merged_through(group) or (group / f"batch_id={batch_id}").exists()

    def stage(self, rows: DataFrame, batch_id: int) -> None:
        """Write the micro-batch under `_writing`, and sync it."""
        write_files(rows, self.kind, self._staging(batch_id), self.partition_by)

    def publish(self, batch_id: int) -> None:
        """Move the micro-batch's folder into the lake in one step."""
        group = self.folder / group_name(batch_id)
        if not group.exists():
            group.mkdir()
            sync_folder(self.folder)
        self._staging(batch_id).rename(group / f"batch_id={batch_id}")
        sync_folder(group)
        shutil.rmtree(self.folder / WRITING, ignore_errors=True)

    def _staging(self, batch_id: int) -> Path:
        return self.folder / WRITING / f"batch_id={batch_id}"


def write_files(rows: DataFrame, kind: str, folder: Path, partition_by: Iterable[str]) -> None:
    """Let Spark write the rows into a folder, remove Hadoop's own files from it, and sync it."""
    rows.sparkSession.conf.set(*_PARQUET_TIMES)
    writer = rows.write.mode("overwrite").format(kind).partitionBy(*partition_by)
    writer.options(**(_JSON_OPTIONS if kind == "json" else {})).save(str(folder))
    for file in folder.rglob("*"):
        if file.is_file() and file.name.startswith(("_", ".")):
            file.unlink()
    sync_tree(folder)


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


def data_files(folder: Path) -> Iterator[DataFile]:
    """Yield the published files of a lake, in the order of the micro-batches."""
    for group in groups_of(folder):
        for batch in batches_of(group):
            yield from files_below(batch)


def files_below(batch: Path) -> Iterator[DataFile]:
    """Yield the data files of one micro-batch."""
    for path in sorted(batch.rglob("*")):
        if path.is_file() and not path.name.startswith(("_", ".")):
            yield DataFile(path, tuple(map(_column, path.relative_to(batch).parts[:-1])))


def _column(folder_name: str) -> tuple[str, str | None]:
    name, _, text = folder_name.partition("=")
    return unquote(name), None if text == _NULL else unquote(text)


def _number(folder: Path) -> int:
    return int(folder.name.rpartition("=")[2])
