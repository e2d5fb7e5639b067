"""Many small files into few, while others read.

Parquet and JSON lines: all files of a thousand micro-batches, partition folder by partition folder,
are written again beside the table, and then the two folders change places in one step. Whoever
lists a lake and then opens what was listed, as Spark, pyarrow and DuckDB do, sees each row once; a
reader whose listing was overtaken finds a file gone, and fails rather than leave rows out. The
newest thousand is left alone while a job runs; no group but that is ever written to.

Delta: delta-rs's own compaction, a transaction that readers of the old version do not notice.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.durable_files import (
    exchange_folders,
    locked,
    replace_text,
    sync_folder,
    sync_tree,
)
from pyspark_tidelog.lake.folders import (
    MERGED,
    DataFile,
    batches_of,
    files_below,
    groups_of,
    merged_through,
)

TARGET_BYTES: Final = 128 << 20

_ROW_GROUP_BYTES: Final = 64 << 20
_MERGING: Final = "_merging"
_LOCK: Final = "_tidelog-compaction.lock"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    files_before: int = 0
    files_after: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.files_before + other.files_before, self.files_after + other.files_after
        )


def compact_folders(
    kind: str, folder: Path, *, job_lock: Path, target_bytes: int = TARGET_BYTES
) -> Compacted:
    """Merge the files of a lake of folders.

    `job_lock` is what a job holds that writes there. Raises JobError where another compaction runs,
    or where folders cannot change places.
    """
    done = Compacted()
    with locked(folder / _LOCK) as is_alone:
        if not is_alone:
            raise JobError(f"another compaction of {folder} is running")
        shutil.rmtree(folder / _MERGING, ignore_errors=True)  # of a compaction that was killed
        groups = groups_of(folder)
        for group in groups[:-1]:
            done += _compact_group(kind, group, target_bytes)
        with locked(job_lock) as is_idle:
            if is_idle and groups:
                done += _compact_group(kind, groups[-1], target_bytes)
    return done


def _compact_group(kind: str, group: Path, target_bytes: int) -> Compacted:
    batches = batches_of(group)
    leaves = _leaves(batches)
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


def _leaves(batches: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the files by partition folder, in the order of the micro-batches."""
    leaves: dict[Path, list[Path]] = {}
    for batch in batches:
        for file in files_below(batch):
            leaves.setdefault(_leaf(batch, file), []).append(file.path)
    return leaves


def _leaf(batch: Path, file: DataFile) -> Path:
    return file.path.parent.relative_to(batch)


def _runs(files: Sequence[Path], target_bytes: int) -> Iterator[list[Path]]:
    """Cut the files into neighbours that together are about as large as wanted."""
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
        os.link(files[0], target)  # large enough as it is
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
    assert pq.read_metadata(target).num_rows == stored, "as many rows are written as there were"


def compact_delta(
    folder: Path, *, target_bytes: int = TARGET_BYTES, vacuum_hours: int | None = None
) -> Compacted:
    """Compact a Delta table, and with `vacuum_hours` remove files unused for as long.

    Raises JobError where the table cannot be compacted.
    """
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 -- an extra

    from pyspark_tidelog.lake.delta import open_table  # noqa: PLC0415 -- the same

    table = open_table(folder)
    if table is None:
        return Compacted()
    before = len(table.file_uris())
    try:
        table.optimize.compact(target_size=target_bytes)
        if vacuum_hours is not None:
            table.vacuum(vacuum_hours, dry_run=False, enforce_retention_duration=False)
    except DeltaError as error:
        raise JobError(f"{folder} cannot be compacted: {error}") from error
    after = len(table.file_uris())
    return Compacted(before, after) if after != before else Compacted()
