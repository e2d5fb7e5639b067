"""Writes the micro-batches of one table, and of its quarantine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import DataFrame

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.ingest.job import IngestCompaction
from pyspark_tidelog.ingest.plan import Plan
from pyspark_tidelog.lake.compaction import Compacted
from pyspark_tidelog.lake.maintenance import compact_table
from pyspark_tidelog.tables.table import Batch, Table


class Written(NamedTuple):
    """The records of a micro-batch that were not in the lake before."""

    rows: int
    quarantined: int

    def plus(self, *more: Written) -> Written:
        """Return the sum."""
        every = (self, *more)
        return Written(sum(one.rows for one in every), sum(one.quarantined for one in every))


class TableWriter:
    """Adds each micro-batch to one table once."""

    def __init__(self, plan: Plan, job_id: str) -> None:
        self._layout = plan.layout
        self._table = plan.table()
        self._quarantine = plan.quarantine()
        self._job_id = job_id
        self.name = str(plan.target)

    def check(self, records: DataFrame) -> None:
        """Raise JobError or OptionError for columns that cannot be written."""
        self._layout.split(records)

    def write(self, frame: DataFrame, batch_id: int, plan: int) -> Iterator[Written]:
        """Write a micro-batch; yield what was published, as soon as it is."""
        batch = Batch(self._job_id, batch_id, plan)
        split = self._layout.split(frame)
        yield Written(append_once(self._table, split.rows, batch), 0)
        if split.bad is not None and self._quarantine is not None:
            bad = append_once(self._quarantine, split.bad, batch)
            yield Written(bad, bad)

    def compact(self) -> IngestCompaction:
        """Merge small files, between two micro-batches."""
        started_s = time.monotonic()
        done, error = Compacted(), None
        try:
            done = compact_table(self._table, is_job=True)
        except (JobError, OSError) as failure:
            error = str(failure)
        seconds = time.monotonic() - started_s
        return IngestCompaction(self.name, done.files_before, done.files_after, seconds, error)


def append_once(table: Table, rows: DataFrame, batch: Batch) -> int:
    """Return the number of rows that were added; 0 if the table has the micro-batch already."""
    if table.has(batch):
        return 0
    staged = table.stage(rows, batch)
    table.publish(staged)
    return staged.rows
