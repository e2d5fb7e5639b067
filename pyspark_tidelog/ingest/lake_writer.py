"""Writes each micro-batch of the job to the lake and the quarantine."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 -- as everywhere in Spark

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.ingest.plan import Plan
from pyspark_tidelog.lake.checkpoint import Identity, sync_plan
from pyspark_tidelog.lake.layout import Split
from pyspark_tidelog.lake.target import Sink


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
        self._sink = plan.sink(identity.job_id)
        self._quarantine = plan.quarantine()
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
            sync_plan(self.checkpoint, batch_id)
            self._write(self._layout.split(frame), batch_id)
        except OSError as error:
            raise JobFailed(f"{error.filename or 'the lake'}: {error.strerror}") from error
        finally:
            self.is_writing = False

    def _write(self, split: Split, batch_id: int) -> None:
        rows = _put_counted(self._sink, split.rows, batch_id)
        self._count(batch_id, Written(rows, 0))
        if split.bad is not None and self._quarantine is not None:
            bad = _put_counted(self._quarantine, split.bad, batch_id)
            self._count(batch_id, Written(bad, bad))

    def _count(self, batch_id: int, new: Written) -> None:
        """Count what was published, even if Spark fails before it records the micro-batch."""
        before = self.written.get(batch_id, Written(0, 0))
        self.written[batch_id] = Written(
            before.rows + new.rows, before.quarantined + new.quarantined
        )


def _put_counted(sink: Sink, rows: DataFrame, batch_id: int) -> int:
    """Return the number of rows; 0 if the micro-batch was published before."""
    if sink.has(batch_id):
        return 0
    seen = Observation()
    sink.stage(rows.observe(seen, F.count(F.lit(1)).alias("rows")), batch_id)
    sink.publish(batch_id)
    return int(seen.get["rows"])
