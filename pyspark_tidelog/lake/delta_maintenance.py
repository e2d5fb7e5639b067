"""Compacts and vacuums Delta tables, in folders and in object stores.

A compaction is one transaction that does not conflict with appends; readers of older versions are
not affected. A vacuum removes files that no version of the last hours refers to: those that a
compaction replaced, and those of attempts that were killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from deltalake import WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.compaction import Compacted
from pyspark_tidelog.tables.delta import LOG_FOLDER, DeltaTable
from pyspark_tidelog.tables.durable_files import sync_file, sync_tree
from pyspark_tidelog.tables.parquet_files import batch_of
from pyspark_tidelog.tables.storage import Storage, sentence_of
from pyspark_tidelog.tables.target import is_remote

_ATTEMPTS: Final = 5  # each after another transaction came first


def compact_delta(table: DeltaTable, target_bytes: int) -> Compacted:
    """Merge small files in one transaction; raise JobError if delta-rs fails."""
    attempts = _ATTEMPTS
    while True:
        attempts -= 1
        try:
            current = table.current()
            if current is None:
                return Compacted()
            before = set(current.file_uris())
            current.optimize.compact(
                target_size=target_bytes,
                writer_properties=WriterProperties(compression="ZSTD"),  # as the job's files,
            )
        except (DeltaError, OSError) as error:
            if isinstance(error, CommitFailedError) and attempts:
                continue
            raise JobError(f"{table.target} cannot be compacted: {sentence_of(error)}") from error
        after = set(current.file_uris())
        _sync(table, after - before)
        return Compacted(len(before), len(after)) if after != before else Compacted()


def vacuum_delta(table: DeltaTable, job_id: str, hours: int) -> int:
    """Remove unused files, and return how many; raise JobError if that fails.

    Files of a micro-batch that is not committed yet stay, however old they are: the job may be
    writing them now.
    """
    current = table.current()
    if current is None:
        return 0
    done = current.transaction_version(job_id)
    try:
        unused = current.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        removed = [path for path in unused if _is_done(batch_of(path), done)]
        Storage.at(table.target.place).remove(removed)
    except (DeltaError, OSError) as error:
        raise JobError(f"{table.target} cannot be vacuumed: {sentence_of(error)}") from error
    return len(removed)


def _is_done(number: int | None, done: int | None) -> bool:
    return number is None or (done is not None and number <= done)


def _sync(table: DeltaTable, new: Iterable[str]) -> None:
    """Sync what delta-rs wrote to a local folder, which it does not do itself."""
    if is_remote(table.target.place):
        return
    for uri in new:
        sync_file(Path(uri.removeprefix("file://")))
    sync_tree(table.target.folder / LOG_FOLDER)
