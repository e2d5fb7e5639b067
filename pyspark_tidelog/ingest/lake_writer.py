"""Writes each micro-batch of the job to the lake and the quarantine."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.ingest.plan import Plan
from pyspark_tidelog.lake.checkpoint import Identity, sync_plan
from pyspark_tidelog.lake.layout import Split
from pyspark_tidelog.tables.table import Batch, Table


class Written(NamedTuple):
    """The records of a micro-batch that were not in the lake before."""

    rows: int
    quarantined: int


class LakeWriter:
    """Writes micro-batches; Spark calls `write` on a thread of its own, one at a time."""

    def __init__(
        self, plan: Plan, identity: Identity, checkpoint: Path, stop: threading.Event
    ) -> None:
        self._layout = plan.layout
        self._table = plan.table()
        self._quarantine = plan.quarantine()
        self._job_id = identity.job_id
        self._stop = stop
        self.checkpoint = checkpoint
        self.written: dict[int, Written] = {}
        """By number; `progress` removes what it has reported."""
        self.is_writing = False
        self.has_refused = False
        """Whether a micro-batch was refused because the job is stopping."""

    def check(self, records: DataFrame) -> None:
        """Raise JobError or OptionError for columns that cannot be written."""
        self._layout.split(records)

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless it was written before."""
        if self._stop.is_set():
            self.has_refused = True
            raise JobError("the job is stopping")
        self.is_writing = True
        try:
            plan = sync_plan(self.checkpoint, batch_id)
            self._write(self._layout.split(frame), Batch(self._job_id, batch_id, plan))
        except OSError as error:
            raise JobFailed(f"{error.filename or 'the lake'}: {error.strerror}") from error
        finally:
            self.is_writing = False

    def _write(self, split: Split, batch: Batch) -> None:
        rows = append_once(self._table, split.rows, batch)
        self._count(batch.number, Written(rows, 0))
        if split.bad is not None and self._quarantine is not None:
            bad = append_once(self._quarantine, split.bad, batch)
            self._count(batch.number, Written(bad, bad))

    def _count(self, batch_id: int, new: Written) -> None:
        """Count what was published, even if Spark fails before it records the micro-batch."""
        before = self.written.get(batch_id, Written(0, 0))
        self.written[batch_id] = Written(
            before.rows + new.rows, before.quarantined + new.quarantined
        )


def append_once(table: Table, rows: DataFrame, batch: Batch) -> int:
    """Return the number of rows that were added; 0 if the table has the micro-batch already."""
    if table.has(batch):
        return 0
    staged = table.stage(rows, batch)
    table.publish(staged)
    return staged.rows
