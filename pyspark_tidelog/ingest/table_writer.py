"""Writes the micro-batches of one table, and its bad records."""

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
from pyspark_tidelog.tables.table import Batch


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

    def __init__(self, plan: Plan, job_id: str, run: int) -> None:
        self._layout = plan.layout
        self._table = plan.table()
        self._bad_records = plan.bad_records()
        self._job_id = job_id
        self._run = run
        self.name = str(plan.target)

    def check(self, records: DataFrame) -> None:
        """Raise JobError or OptionError for columns that cannot be written."""
        self._layout.split(records)

    def write(self, frame: DataFrame, batch_id: int, plan: int) -> Iterator[Written]:
        """Write a micro-batch; yield what was published, as soon as it is."""
        batch = Batch(self._job_id, batch_id, plan, self._run)
        split = self._layout.split(frame)
        has_bad = split.bad is not None
        if not self._table.has(batch):
            staged = self._table.stage(split.rows, batch)
            has_bad = split.bad is not None and split.bad.count() > 0
            if split.bad is not None and has_bad and self._bad_records is None:
                raise JobError(split.bad.sentence())
            self._table.publish(staged)
            yield Written(staged.rows, 0)
        if split.bad is not None and has_bad and self._bad_records is not None:
            bad = self._bad_records.add(split.bad.records, batch)
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
