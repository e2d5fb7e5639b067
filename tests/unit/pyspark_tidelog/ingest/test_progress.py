"""The progress reports of a run's query: each once, without extra requests to Spark."""

from __future__ import annotations

from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from pyspark_tidelog.ingest.job import (
    IngestCompaction,
    IngestEvent,
    IngestIdle,
    IngestProgress,
    TableReport,
)
from pyspark_tidelog.ingest.progress import Lag, Progress
from pyspark_tidelog.ingest.table_writer import Written


def report(batch_id: int, second: int, *, is_idle: bool = False) -> SimpleNamespace:
    """What Spark says of a trigger."""
    durations = {"triggerExecution": 5} | ({} if is_idle else {"addBatch": 4})
    source = SimpleNamespace(latestOffset=None, endOffset=None)
    return SimpleNamespace(
        batchId=batch_id, timestamp=f"12:00:{second}", durationMs=durations, sources=[source]
    )


class Query:
    """Stands for Spark's query: keeps its reports, and counts how often all are fetched."""

    def __init__(self, *reports: SimpleNamespace) -> None:
        self.reports = list(reports)
        self.fetched = 0

    @property
    def lastProgress(self) -> SimpleNamespace | None:  # noqa: N802 - Spark's name
        return self.reports[-1] if self.reports else None

    @property
    def recentProgress(self) -> list[SimpleNamespace]:  # noqa: N802 - Spark's name
        self.fetched += 1
        return self.reports


def test_an_idle_query_is_asked_for_its_reports_once() -> None:
    """A hundred of them are put into JSON each time: looking again costs one report."""
    told: list[IngestEvent] = []
    compactions: SimpleQueue[IngestCompaction] = SimpleQueue()
    compactions.put(IngestCompaction("a", 5, 1, 0.5))
    writer: Any = SimpleNamespace(
        compactions=compactions,
        written={0: {"a": Written(4, 0), "b": Written(3, 2)}, 1: {"a": Written(1, 0)}},
    )
    meter: Any = SimpleNamespace(measure=lambda _report: Lag(9, 2.5))
    query: Any = Query()
    tally = Progress(writer, meter, told.append)
    tally.add(query)
    query.reports += [report(0, 1), report(1, 2, is_idle=True)]
    for _ in range(5):
        tally.add(query)
    assert query.fetched == 1
    assert [type(event) for event in told] == [IngestCompaction, IngestProgress, IngestIdle]
    done = tally.report(restarts=0, is_stopped=False)
    assert (done.rows, done.quarantined, done.batches, done.lag, done.lag_s) == (7, 2, 1, 9, 2.5)
    query.reports.append(report(1, 3))
    tally.add(query)
    assert (query.fetched, tally.batches, type(told[-1])) == (2, 2, IngestProgress)
    assert writer.written == {}
    done = tally.report(restarts=0, is_stopped=False)
    assert done.tables == (TableReport("a", 5, 0), TableReport("b", 3, 2))
