"""The progress reports of a run's query: each once, without extra requests to Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyspark_tidelog.ingest.job import IngestEvent, IngestIdle, IngestProgress
from pyspark_tidelog.ingest.lake_writer import Written
from pyspark_tidelog.ingest.progress import Progress


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
    writer: Any = SimpleNamespace(written={0: Written(7, 2)})
    query: Any = Query()
    tally = Progress(writer, told.append)
    tally.add(query)
    query.reports += [report(0, 1), report(1, 2, is_idle=True)]
    for _ in range(5):
        tally.add(query)
    assert query.fetched == 1
    assert [type(event) for event in told] == [IngestProgress, IngestIdle]
    assert (tally.rows, tally.quarantined, tally.batches, writer.written) == (7, 2, 1, {})
    query.reports.append(report(1, 3))
    tally.add(query)
    assert (query.fetched, tally.batches, type(told[-1])) == (2, 2, IngestProgress)
