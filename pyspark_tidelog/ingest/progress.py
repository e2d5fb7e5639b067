"""Reports each finished micro-batch once, and counts over all queries of a run."""

from __future__ import annotations

import time
from typing import Final

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_tidelog.ingest.job import (
    IngestIdle,
    IngestProgress,
    IngestReport,
    Listener,
    TableReport,
)
from pyspark_tidelog.ingest.lag import Lag, LagMeter
from pyspark_tidelog.ingest.lake_writer import LakeWriter
from pyspark_tidelog.ingest.table_writer import Written

_NOTHING: Final = Written(0, 0)


class Progress:
    """The counters of a run."""

    def __init__(self, writer: LakeWriter, meter: LagMeter, listener: Listener) -> None:
        self._writer = writer
        self._meter = meter
        self._listener = listener
        self._started_s = time.monotonic()
        self._last_batch_id = -1
        self._last_seen = ""
        self._tables: dict[str, Written] = {}
        self._lag = Lag(None, None)
        self.batches = 0

    def begin(self) -> None:
        """Prepare for another query."""
        self._last_seen = ""

    def add(self, query: StreamingQuery) -> None:
        """Report what was finished since the last call."""
        while not self._writer.compactions.empty():
            self._listener(self._writer.compactions.get())
        last = query.lastProgress  # cheaper than up to a hundred reports of recentProgress
        if last is None or last.timestamp == self._last_seen:
            return
        self._last_seen = last.timestamp
        for report in query.recentProgress:
            # An idle query reports as well, always with the number of the next micro-batch.
            if report.batchId > self._last_batch_id and "addBatch" in report.durationMs:
                self._add(report)
        if "addBatch" not in last.durationMs:
            lag = self._meter.measure(last)
            self._listener(IngestIdle(lag.records, lag.seconds))

    def report(self, *, restarts: int, is_stopped: bool) -> IngestReport:
        """Return the result of the run."""
        total = self._total()
        return IngestReport(
            total.rows,
            total.quarantined,
            self.batches,
            restarts,
            self._lag.records,
            is_stopped=is_stopped,
            lag_s=self._lag.seconds,
            seconds=time.monotonic() - self._started_s,
            tables=tuple(TableReport(table, *one) for table, one in sorted(self._tables.items())),
            with_unknown_fields=total.with_unknown_fields,
        )

    def _add(self, report: StreamingQueryProgress) -> None:
        written = self._writer.written.pop(report.batchId, {})
        for table, one in written.items():
            self._tables[table] = self._tables.get(table, _NOTHING).plus(one)
        new = _NOTHING.plus(*written.values())
        self._last_batch_id = report.batchId
        self.batches += 1
        self._lag = self._meter.measure(report)
        duration_ms = report.durationMs["triggerExecution"]
        self._listener(
            IngestProgress(
                batch_id=report.batchId,
                rows=new.rows,
                quarantined=new.quarantined,
                with_unknown_fields=new.with_unknown_fields,
                total_rows=self._total().rows,
                rows_per_second=new.rows * 1000 / max(duration_ms, 1),
                duration_ms=duration_ms,
                lag=self._lag.records,
                lag_s=self._lag.seconds,
            )
        )

    def _total(self) -> Written:
        return _NOTHING.plus(*self._tables.values())
