"""Reports each finished micro-batch once, and counts over all queries of a run."""

from __future__ import annotations

import json

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_tidelog.ingest.job import IngestIdle, IngestProgress, Listener
from pyspark_tidelog.ingest.lake_writer import LakeWriter, Written
from pyspark_tidelog.source.stream_offsets import StreamOffset


class Progress:
    """The counters of a run."""

    def __init__(self, writer: LakeWriter, listener: Listener) -> None:
        self._writer = writer
        self._listener = listener
        self._last_batch_id = -1
        self._last_seen = ""
        self.rows = 0
        self.quarantined = 0
        self.batches = 0
        self.lag: int | None = None

    def begin(self) -> None:
        """Prepare for another query."""
        self._last_seen = ""

    def add(self, query: StreamingQuery) -> None:
        """Report the micro-batches that were finished since the last call."""
        last = query.lastProgress  # cheaper than up to a hundred reports of recentProgress
        if last is None or last.timestamp == self._last_seen:
            return
        self._last_seen = last.timestamp
        for report in query.recentProgress:
            # An idle query reports as well, always with the number of the next micro-batch.
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
    """Return the number of offsets between the query and the end of the log."""
    latest, end = (
        json.loads(text or "null")
        for text in (report.sources[0].latestOffset, report.sources[0].endOffset)
    )
    if latest is None or end is None:
        return None
    latest = StreamOffset.from_json(latest).offsets
    end = StreamOffset.from_json(end).offsets
    return sum(max(offset - end.get(log, 0), 0) for log, offset in latest.items())
