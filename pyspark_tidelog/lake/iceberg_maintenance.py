"""Compacts and vacuums Iceberg tables.

A compaction is one snapshot that replaces small files. It is refused if the table has changed
meanwhile, and starts again. A vacuum expires snapshots, then removes the data files and manifests
that no snapshot refers to.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

from pyarrow.fs import FileSelector, FileType
from pyiceberg.exceptions import CommitFailedException, RESTError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO, _dataframe_to_data_files
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as CatalogTable

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.compaction import Compacted
from pyspark_tidelog.tables.iceberg import (
    IcebergTable,
    current,
    last_batch,
    without_retries,
)
from pyspark_tidelog.tables.parquet_files import batch_of
from pyspark_tidelog.tables.storage import sentence_of

_ATTEMPTS: Final = 5  # each after another commit came first
_SUFFIXES: Final = (".parquet", ".avro")


def compact_iceberg(table: IcebergTable, target_bytes: int) -> Compacted:
    """Merge small files in one snapshot; raise JobError if that fails."""
    attempts = _ATTEMPTS
    while True:
        attempts -= 1
        try:
            found = current(table.target)
            return Compacted() if found is None else _compacted(found, target_bytes)
        except (RESTError, OSError, CommitFailedException) as error:
            if isinstance(error, CommitFailedException) and attempts:
                continue
            raise JobError(f"{table.target} cannot be compacted: {sentence_of(error)}") from error


def vacuum_iceberg(table: IcebergTable, job_id: str, hours: int) -> int:
    """Remove unused files, and return how many; raise JobError if that fails.

    Files of a micro-batch that is not committed yet stay, however old they are: the job may be
    writing them now.
    """
    until = datetime.now(UTC) - timedelta(hours=hours)
    try:
        found = current(table.target)
        if found is None:
            return 0
        found.maintenance.expire_snapshots().older_than(until.replace(tzinfo=None)).commit()
        found.refresh()
        removed = [*_unused(found, job_id, until)]
        for path in removed:
            found.io.delete(path)
    except (RESTError, OSError, CommitFailedException) as error:
        raise JobError(f"{table.target} cannot be vacuumed: {sentence_of(error)}") from error
    return len(removed)


def _compacted(found: CatalogTable, target_bytes: int) -> Compacted:
    runs = [run for run in _runs(found, target_bytes) if len(run) > 1]
    if not runs:
        return Compacted()
    before = sum(1 for _ in found.scan().plan_files())
    rows = ArrowScan(found.metadata, found.io, found.schema(), AlwaysTrue())
    added = 0
    with (
        without_retries(found).transaction() as transaction,
        transaction.update_snapshot().overwrite() as replaced,
    ):
        for run in runs:
            for task in run:
                replaced.delete_data_file(task.file)
            merged = rows.to_table(run)
            for file in _dataframe_to_data_files(found.metadata, merged, found.io):
                replaced.append_data_file(file)
                added += 1
    return Compacted(before, before - sum(map(len, runs)) + added)


def _runs(found: CatalogTable, target_bytes: int) -> Iterator[list[FileScanTask]]:
    """Group the files of each partition up to the target size."""
    tasks = sorted(found.scan().plan_files(), key=_partition_key)
    for _, own in groupby(tasks, key=_partition_key):
        run: list[FileScanTask] = []
        size_bytes = 0
        for task in own:
            if run and size_bytes + task.file.file_size_in_bytes > target_bytes:
                yield run
                run, size_bytes = [], 0
            run.append(task)
            size_bytes += task.file.file_size_in_bytes
        if run:
            yield run


def _partition_key(task: FileScanTask) -> str:
    return f"{task.file.spec_id} {task.file.partition}"


def _unused(found: CatalogTable, job_id: str, until: datetime) -> Iterator[str]:
    """Yield the data files and manifests that no snapshot refers to, and that are old."""
    used = {_path(name) for name in _used(found)}
    done = last_batch(found, job_id).number
    files = PyArrowFileIO(found.io.properties)
    scheme, netloc, folder = PyArrowFileIO.parse_location(found.location())
    listed = files.fs_by_scheme(scheme, netloc).get_file_info(
        FileSelector(folder, recursive=True, allow_not_found=True)
    )
    for entry in listed:
        name = entry.path.removeprefix(folder).lstrip("/")
        number = batch_of(name.removeprefix("data/"))
        if (
            entry.type == FileType.File
            and name.endswith(_SUFFIXES)
            and entry.path not in used
            and entry.mtime < until
            and (number is None or number <= done)
        ):
            yield f"{found.location()}/{name}"


def _used(found: CatalogTable) -> Iterator[str]:
    seen: set[str] = set()
    for snapshot in found.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(found.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(found.io, discard_deleted=True):
                yield entry.data_file.file_path


def _path(location: str) -> str:
    return PyArrowFileIO.parse_location(location)[2]
