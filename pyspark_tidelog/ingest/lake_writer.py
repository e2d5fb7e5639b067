"""What the job does with one micro-batch: into the quarantine and into the lake, each once."""

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
from pyspark_tidelog.lake.target import Sink, put


class Written(NamedTuple):
    """What of a micro-batch was new."""

    rows: int
    quarantined: int


class BatchWriter:
    """Spark calls `write` on a thread of its own, one micro-batch after the other."""

    def __init__(
        self, plan: Plan, identity: Identity, checkpoint: Path, stop: threading.Event
    ) -> None:
        self._layout = plan.layout
        self._sink = plan.sink(identity.job_id)
        self._quarantine = plan.quarantine()
        self._stop = stop
        self.checkpoint = checkpoint
        self.written: dict[int, Written] = {}
        """By number, until somebody takes it out."""
        self.is_writing = False
        self.has_refused = False
        """Whether a micro-batch was not begun because the job is to stop."""

    def check(self, records: DataFrame) -> None:
        """Raise JobError or OptionError for rows that could never be written."""
        self._layout.split(records)

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Bring a micro-batch in."""
        if self._stop.is_set():
            self.has_refused = True
            raise JobError("the job was told to stop")
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
        """Add at once: what is published stays new though Spark fails before it notes that."""
        before = self.written.get(batch_id, Written(0, 0))
        self.written[batch_id] = Written(
            before.rows + new.rows, before.quarantined + new.quarantined
        )


def _put_counted(sink: Sink, rows: DataFrame, batch_id: int) -> int:
    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
    return int(seen.get["rows"]) if put(sink, counted, batch_id) else 0
