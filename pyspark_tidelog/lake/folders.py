"""Parquet and JSON lines in plain folders: a micro-batch owns one, and it appears whole.

    lake/
        batches=0/batch_id=0/part-….parquet          the first thousand micro-batches
        batches=0/batch_id=1/carrier=AA/part-….parquet
        batches=1000/…
        _tidelog-job.json                            whose lake it is
        _writing/                                    what no reader should look at

Spark's own streaming file sink is exactly-once for Spark alone: after a crash every other reader of
the folder sees records twice. Here any reader that lists files sees each record once. The folders
of a thousand micro-batches are merged by putting another folder in the place of `batches=…` in one
step; `_merged.json` in it says up to which micro-batch it goes.
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

# Neither loses what a record has: Spark's defaults cut times to milliseconds (JSON) or write them
# in a form that most readers call deprecated (Parquet), and leave null fields out.
_JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timeZone": "UTC",
}
_PARQUET_TIMES: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


class DataFile(NamedTuple):
    """A file of rows, and the columns that the names of its folders hold, as text."""

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
        """Write beside the table, and put it on disk before anything says that it is there."""
        write_files(rows, self.kind, self._staging(batch_id), self.partition_by)

    def publish(self, batch_id: int) -> None:
        """Move the folder in; a micro-batch's second folder is never moved over its first."""
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
    """Let Spark write the rows into a folder of data files and nothing else, durably."""
    rows.sparkSession.conf.set(*_PARQUET_TIMES)
    writer = rows.write.mode("overwrite").format(kind).partitionBy(*partition_by)
    writer.options(**(_JSON_OPTIONS if kind == "json" else {})).save(str(folder))
    for file in folder.rglob("*"):
        if file.is_file() and file.name.startswith(("_", ".")):
            file.unlink()  # checksums and markers of Hadoop's, which the last rename outdates
    sync_tree(folder)


def group_name(batch_id: int) -> str:
    """Return the folder that a micro-batch's folder lies in."""
    return f"batches={batch_id - batch_id % GROUP_BATCHES}"


def groups_of(folder: Path) -> list[Path]:
    """Return the groups of micro-batches in a lake, the oldest first."""
    return sorted(folder.glob("batches=*"), key=_number)


def batches_of(group: Path) -> list[Path]:
    """Return the micro-batches of a group, the oldest first."""
    return sorted(group.glob("batch_id=*"), key=_number)


def merged_through(group: Path) -> int:
    """Return the last micro-batch that compaction merged into the group's first, -1 if none."""
    try:
        return int(json.loads((group / MERGED).read_text())["through"])
    except FileNotFoundError:
        return -1
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(f"{group / MERGED} is damaged: {error!r}") from error


def data_files(folder: Path) -> Iterator[DataFile]:
    """Yield the published files of a lake, in the order of their micro-batches."""
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
