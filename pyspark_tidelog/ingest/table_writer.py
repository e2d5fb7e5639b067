"""Writes the micro-batches of one table, and its bad records."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol

from pyspark.sql import DataFrame

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.ingest.job import IngestCompaction
from pyspark_tidelog.ingest.plan import Plan
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.lake.compaction import Compacted
from pyspark_tidelog.lake.layout import Seen
from pyspark_tidelog.lake.maintenance import compact_table
from pyspark_tidelog.tables.storage import sentence_of
from pyspark_tidelog.tables.table import Batch

_LOG = logging.getLogger(__name__)
_SHOWN_CHARACTERS: Final = 200
_MANY_FILES: Final = 200
_SHARE: Final = 20  # a compaction may take a twentieth of the time


class Written(NamedTuple):
    """The records of a micro-batch that were not in the lake before."""

    rows: int
    quarantined: int
    with_unknown_fields: int = 0

    def plus(self, *more: Written) -> Written:
        """Return the sum."""
        return Written(*map(sum, zip(self, *more, strict=True)))


class CompactionSchedule:
    """When the small files of a table are merged: this often, or after many new files.

    The latter is for tables whose readers are not disturbed, so only their files are counted.
    """

    def __init__(self, every_s: float | None, now_s: float) -> None:
        self._every_s = every_s
        self._last_s = now_s
        self._took_s = 0.0
        self._new_files = 0

    def added(self, files: int) -> None:
        """Count files that a micro-batch has added."""
        self._new_files += files

    def is_due(self, now_s: float) -> bool:
        """Whether a table that was written should be compacted now."""
        passed_s = now_s - self._last_s
        if self._every_s is None:
            return self._new_files >= _MANY_FILES and passed_s >= _SHARE * self._took_s
        return 0 < self._every_s <= passed_s

    def done(self, took_s: float, now_s: float) -> None:
        """Start counting again after a compaction, even if it failed."""
        self._last_s, self._took_s, self._new_files = now_s, took_s, 0


class TableWriter:
    """Adds each micro-batch to one table once."""

    def __init__(self, plan: Plan, job_id: str, run: int, compact_every_s: float | None) -> None:
        self._layout = plan.layout
        self._table = plan.table()
        self._bad_records = plan.bad_records()
        self._job_id = job_id
        self._run = run
        self.name = str(plan.target)
        self.schedule = CompactionSchedule(compact_every_s, time.monotonic())
        self._has_warned = False

    def check(self, records: DataFrame) -> None:
        """Raise JobError or OptionError for columns that cannot be written."""
        self._layout.split(records)

    def write(self, frame: DataFrame, batch_id: int, plan: int) -> Iterator[Written]:
        """Write a micro-batch; yield what was published, as soon as it is."""
        batch = Batch(self._job_id, batch_id, plan, self._run)
        split = self._layout.split(frame)
        seen = split.seen
        has_bad = seen is not None
        if not self._table.has(batch):
            staged = self._table.stage(split.rows, batch)
            has_bad = seen is not None and seen.bad_count() > 0
            if seen is not None and has_bad and self._bad_records is None:
                raise JobError(seen.sentence())
            self._table.publish(staged)
            self.schedule.added(len(staged.files))
            yield Written(staged.rows, 0, 0 if seen is None else self._unknown(seen))
        if seen is not None and has_bad and self._bad_records is not None:
            bad = self._bad_records.add(seen.bad, batch)
            yield Written(bad, bad)

    def _unknown(self, seen: Seen) -> int:
        """Return the number of rows with unknown fields; name some, once in a run."""
        count = seen.unknown_count()
        if count and not self._has_warned and self._layout.rescue is None:
            self._has_warned = True
            _LOG.warning(
                "%s: %s record(s) have fields that the schema does not have, such as %s; they are "
                "left out: --rescue COLUMN keeps them",
                self.name,
                f"{count:,}",
                seen.unknown_fields()[:_SHOWN_CHARACTERS],
            )
        return count

    def compact(self) -> IngestCompaction:
        """Merge small files, between two micro-batches."""
        started_s = time.monotonic()
        done, error = Compacted(), None
        try:
            done = compact_table(self._table, is_job=True)
        except (JobError, OSError) as failure:
            error = str(failure)
        seconds = time.monotonic() - started_s
        self.schedule.done(seconds, time.monotonic())
        return IngestCompaction(self.name, done.files_before, done.files_after, seconds, error)


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
