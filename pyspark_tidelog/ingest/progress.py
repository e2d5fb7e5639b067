"""Counts what Spark and the sink report, each micro-batch once."""

from __future__ import annotations

import json

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_tidelog.ingest.job import IngestIdle, IngestProgress, Listener
from pyspark_tidelog.ingest.lake_writer import BatchWriter, Written
from pyspark_tidelog.source.stream_offsets import StreamOffset


class Tally:
    """The sums of a run, over all its queries."""

    def __init__(self, writer: BatchWriter, listener: Listener) -> None:
        self._writer = writer
        self._listener = listener
        self._last_batch_id = -1
        self._last_seen = ""
        self.rows = 0
        self.quarantined = 0
        self.batches = 0
        self.lag: int | None = None

    def begin(self) -> None:
        """Get ready for another query, whose progress is another one's."""
        self._last_seen = ""

    def add(self, query: StreamingQuery) -> None:
        """Report the micro-batches that were completed since the last call."""
        last = query.lastProgress  # one report; there may be a hundred recent ones
        if last is None or last.timestamp == self._last_seen:
            return
        self._last_seen = last.timestamp
        for report in query.recentProgress:
            # An idle query reports, too: again and again the number of the micro-batch to come.
            if report.batchId > self._last_batch_id and "addBatch" in report.durationMs:
                self._add(report)
        if "addBatch" not in last.durationMs:
            self._listener(IngestIdle(lag_of(last)))

    def _add(self, report: StreamingQueryProgress) -> None:
        written = self._writer.written.pop(report.batchId, Written(0, 0))
        self._last_batch_id = report.batchId
        self.rows += written.rows
        self.quarantined += written.quarantined
        self.batches += 1
        self.lag = lag_of(report)
        duration_ms = report.durationMs["triggerExecution"]
        self._listener(
            IngestProgress(
                batch_id=report.batchId,
                rows=written.rows,
                quarantined=written.quarantined,
                total_rows=self.rows,
                rows_per_second=written.rows * 1000 / max(duration_ms, 1),
                duration_ms=duration_ms,
                lag=self.lag,
            )
        )


def lag_of(report: StreamingQueryProgress) -> int | None:
    """Return how many offsets the query is behind what it saw of the log."""
    latest, end = (
        json.loads(text or "null")
        for text in (report.sources[0].latestOffset, report.sources[0].endOffset)
    )
    if latest is None or end is None:
        return None
    latest = StreamOffset.from_json(latest).offsets
    end = StreamOffset.from_json(end).offsets
    return sum(max(offset - end.get(log, 0), 0) for log, offset in latest.items())
