"""Writes each micro-batch of the job to its tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Protocol

from pyspark.sql import DataFrame

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.ingest.job import IngestCompaction
from pyspark_tidelog.ingest.table_writer import TableWriter, Written
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.tables.storage import sentence_of


class Tables(Protocol):
    """The tables of a job."""

    def check(self, records: DataFrame) -> None:
        """Raise JobError or OptionError for columns that cannot be written."""

    def parts(self, frame: DataFrame, batch_id: int) -> Iterable[tuple[TableWriter, DataFrame]]:
        """Return the parts of a micro-batch, and the writer of the table for each."""


class OneTable:
    """The table of a job that names its topics."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer

    def check(self, records: DataFrame) -> None:
        self._writer.check(records)

    def parts(self, frame: DataFrame, batch_id: int) -> Iterable[tuple[TableWriter, DataFrame]]:  # noqa: ARG002 -- of the interface
        return [(self._writer, frame)]


class LakeWriter:
    """Writes micro-batches; Spark calls `write` on a thread of its own, one at a time."""

    def __init__(
        self,
        tables: Tables,
        checkpoint: Checkpoint,
        stop: threading.Event,
        wake: threading.Event,
    ) -> None:
        self._tables = tables
        self._stop = stop
        self.checkpoint = checkpoint
        self.written: dict[int, dict[str, Written]] = {}
        """By number and table; `progress` removes what it has reported."""
        self._not_compacted: dict[str, TableWriter] = {}
        self.compactions: SimpleQueue[IngestCompaction] = SimpleQueue()
        """Those that `progress` has not reported yet."""
        self.wake = wake
        """Set when a micro-batch begins."""
        self.is_writing = False
        self.has_refused = False
        """Whether a micro-batch was refused because the job is stopping."""

    def check(self, records: DataFrame) -> None:
        """Raise JobError or OptionError for columns that cannot be written."""
        self._tables.check(records)

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless it was written before."""
        if self._stop.is_set():
            self.has_refused = True
            raise JobError("the job is stopping")
        self.is_writing = True
        self.wake.set()
        try:
            self.checkpoint.ensure_held()
            plan = self.checkpoint.sync_plan(batch_id)
            for writer, rows in self._tables.parts(frame, batch_id):
                for new in writer.write(rows, batch_id, plan):
                    self._count(batch_id, writer.name, new)
                self._not_compacted[writer.name] = writer
            self._compact()
        except OSError as error:
            reason = error.strerror or sentence_of(error) or type(error).__name__
            raise JobFailed(f"{error.filename or 'the lake'}: {reason}") from error
        finally:
            self.is_writing = False

    def _compact(self) -> None:
        """Merge the small files of the tables that were written, if it is time."""
        for name, writer in [*self._not_compacted.items()]:
            if writer.schedule.is_due(time.monotonic()):
                self.compactions.put(writer.compact())
                del self._not_compacted[name]

    def _count(self, batch_id: int, table: str, new: Written) -> None:
        """Count what was published, even if Spark fails before it records the micro-batch."""
        counts = self.written.setdefault(batch_id, {})
        counts[table] = counts.get(table, Written(0, 0)).plus(new)
