"""Reports each finished micro-batch once, and counts over all queries of a run.

A lag is how many records wait, and how old the oldest of them is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import ServiceError
from pyspark_tidelog.ingest.job import (
    IngestIdle,
    IngestProgress,
    IngestReport,
    Listener,
    TableReport,
)
from pyspark_tidelog.ingest.table_writer import LakeWriter, Written
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.records.batches import FrameError, whole_batches
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.stream_offsets import StreamOffset

_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Lag:
    """What lies between the lake and the end of the log; None if it is not known."""

    records: int | None
    seconds: float | None


class LagMeter:
    """Measures the lag from Spark's reports, and asks the service for the age of what waits."""

    def __init__(self, options: Options, now: Callable[[], float] = time.time) -> None:
        self._options = options
        self._now = now

    def measure(self, report: StreamingQueryProgress) -> Lag:
        """Return the lag after a micro-batch."""
        waiting = _waiting(report)
        if waiting is None:
            return Lag(None, None)
        records = sum(end - begin for begin, end in waiting.values())
        return Lag(records, self._age_s(waiting) if waiting else 0.0)

    def _age_s(self, waiting: Mapping[TopicPartition, tuple[int, int]]) -> float | None:
        """Return the age of the oldest record that waits; None if the service does not say."""
        # A report must not wait for a service that restarts.
        timeout_s = min(self._options.endpoint.timeout_s, _TIMEOUT_S)
        endpoint = replace(self._options.endpoint, retries=0, timeout_s=timeout_s)
        try:
            with ServiceClient(endpoint) as client:
                times = [self._time_ms(client, log, *span) for log, span in waiting.items()]
        except ServiceError:
            return None
        oldest_ms = min((ms for ms in times if ms is not None), default=None)
        return None if oldest_ms is None else max(self._now() - oldest_ms / 1000, 0.0)

    def _time_ms(
        self, client: ServiceClient, log: TopicPartition, begin: int, end: int
    ) -> int | None:
        """Return the timestamp of the first batch in a range of offsets."""
        path = f"{log.path}/batches?offset={begin}&end_offset={end}&max_bytes=1"
        if self._options.isolation != "read_uncommitted":
            path += f"&isolation={self._options.isolation}"
        answer = client.get(path, expected=frozenset({404, 409, 410, 416}))
        try:
            frames = whole_batches(answer.body) if answer.status == 200 else []
        except FrameError:
            return None  # the next micro-batch reads it, and reports the damage
        if not frames:
            return None
        batch = frames[0]
        return batch.max_timestamp if batch.has_append_time else batch.base_timestamp


def _waiting(report: StreamingQueryProgress) -> dict[TopicPartition, tuple[int, int]] | None:
    """Return the waiting offsets of each partition that has any."""
    latest, end = (
        json.loads(text or "null")
        for text in (report.sources[0].latestOffset, report.sources[0].endOffset)
    )
    if latest is None or end is None:
        return None
    latest = StreamOffset.from_json(latest).offsets
    end = StreamOffset.from_json(end)
    begins = {log: end.offsets.get(log, 0) for log in latest}
    return {log: (begins[log], last) for log, last in latest.items() if last > begins[log]}


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
