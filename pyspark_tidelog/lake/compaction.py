"""Merges small files into large ones while others read the lake.

Parquet and JSON lines: the files of a thousand micro-batches are merged beside the table, one
partition folder at a time, and then the two folders are exchanged in one step. Readers that list
the files and then open them, such as Spark, pyarrow and DuckDB, see each row once. A reader that
listed the old files fails to open them; it never misses rows without an error. The newest group,
the only one that a job writes to, is merged only while no job runs.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.tables.durable_files import (
    exchange_folders,
    locked,
    replace_text,
    sync_folder,
    sync_tree,
)
from pyspark_tidelog.tables.folders import (
    MERGED,
    WRITING,
    batches_of,
    files_below,
    groups_of,
    merged_through,
)
from pyspark_tidelog.tables.places import LOCK_NAME

TARGET_BYTES: Final = 128 << 20

_ROW_GROUP_BYTES: Final = 64 << 20
_MERGING: Final = "_merging"
_LOCK: Final = "_tidelog-compaction.lock"


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction."""

    files_before: int = 0
    files_after: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.files_before + other.files_before, self.files_after + other.files_after
        )


def compact_folders(
    kind: str, folder: Path, target_bytes: int = TARGET_BYTES, *, is_job: bool = False
) -> Compacted:
    """Merge the files of a Parquet or JSON lake.

    `is_job` says that the job itself asks for it, between two micro-batches. Raises JobError if
    another compaction runs, or if the file system cannot exchange two folders.
    """
    done = Compacted()
    with locked(folder / _LOCK) as is_alone:
        if not is_alone:
            raise JobError(f"another compaction of {folder} is running")
        shutil.rmtree(folder / _MERGING, ignore_errors=True)  # left by a compaction that was killed
        groups = groups_of(folder)
        for group in groups[:-1]:
            done += _compact_group(kind, group, target_bytes)
        with nullcontext(enter_result=True) if is_job else locked(folder / LOCK_NAME) as is_idle:
            if is_idle and groups:
                done += _compact_group(kind, groups[-1], target_bytes)
    return done


def vacuum_folders(folder: Path) -> int:
    """Remove what killed jobs and compactions left, and return the number of files.

    The job's files stay while one runs. Raises JobError if a compaction runs.
    """
    with locked(folder / _LOCK) as is_alone:
        if not is_alone:
            raise JobError(f"another compaction of {folder} is running")
        removed = _removed(folder / _MERGING)
        with locked(folder / LOCK_NAME) as is_idle:
            return removed + (_removed(folder / WRITING) if is_idle else 0)


def _removed(folder: Path) -> int:
    count = sum(entry.is_file() for entry in folder.rglob("*"))
    shutil.rmtree(folder, ignore_errors=True)
    return count


def _compact_group(kind: str, group: Path, target_bytes: int) -> Compacted:
    batches = batches_of(group)
    leaves: dict[Path, list[Path]] = {}  # by partition folder, in the order of the micro-batches
    for batch in batches:
        for file in files_below(batch):
            leaves.setdefault(file.path.parent.relative_to(batch), []).append(file.path)
    runs = {leaf: [*_runs(files, target_bytes)] for leaf, files in leaves.items()}
    before = sum(map(len, leaves.values()))
    after = sum(map(len, runs.values()))
    if after == before:
        return Compacted()
    staging = group.parent / _MERGING / group.name
    for leaf, merged in runs.items():
        target = staging / batches[0].name / leaf
        target.mkdir(parents=True)
        for number, run in enumerate(merged):
            _merge(kind, run, target / f"merged-{number:05d}.{kind}")
    through = max(merged_through(group), int(batches[-1].name.rpartition("=")[2]))
    replace_text(staging / MERGED, json.dumps({"through": through}))
    sync_tree(staging)
    exchange_folders(staging, group)
    sync_folder(group.parent)
    shutil.rmtree(group.parent / _MERGING)
    return Compacted(before, after)


def _runs(files: Sequence[Path], target_bytes: int) -> Iterator[list[Path]]:
    """Group consecutive files up to the target size."""
    run: list[Path] = []
    size_bytes = 0
    for file in files:
        own_bytes = file.stat().st_size
        if run and size_bytes + own_bytes > target_bytes:
            yield run
            run, size_bytes = [], 0
        run.append(file)
        size_bytes += own_bytes
    if run:
        yield run


def _merge(kind: str, files: Sequence[Path], target: Path) -> None:
    if len(files) == 1:
        os.link(files[0], target)
    elif kind == "json":
        with target.open("wb") as merged:
            for file in files:
                with file.open("rb") as lines:
                    shutil.copyfileobj(lines, merged)
    else:
        _merge_parquet(files, target)


def _merge_parquet(files: Sequence[Path], target: Path) -> None:
    schema = pq.read_schema(files[0])
    waiting: list[pa.RecordBatch] = []
    with pq.ParquetWriter(target, schema, compression="snappy") as writer:
        for path in files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    waiting.append(batch.cast(schema))
                    if sum(each.nbytes for each in waiting) >= _ROW_GROUP_BYTES:
                        writer.write_table(pa.Table.from_batches(waiting))
                        waiting.clear()
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    stored = sum(pq.read_metadata(path).num_rows for path in files)
    assert pq.read_metadata(target).num_rows == stored, "no row is lost"
