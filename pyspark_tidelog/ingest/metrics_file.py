"""The job's metrics, in a file for Prometheus' textfile collector."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.ingest.job import IngestEvent, IngestIdle, IngestProgress, IngestRestart


class Metric(NamedTuple):
    """One line of the file."""

    name: str
    kind: str
    help: str


METRICS: Final = {
    "rows": Metric("tidelog_ingest_rows_total", "counter", "Records that went in."),
    "quarantined": Metric(
        "tidelog_ingest_quarantined_rows_total", "counter", "Of these, into the quarantine."
    ),
    "batches": Metric("tidelog_ingest_batches_total", "counter", "Micro-batches done."),
    "restarts": Metric("tidelog_ingest_restarts_total", "counter", "Starts after a failure."),
    "lag": Metric("tidelog_ingest_lag_records", "gauge", "Offsets from the lake to the log's end."),
    "seconds": Metric(
        "tidelog_ingest_last_batch_seconds", "gauge", "Duration of the last micro-batch."
    ),
    "done": Metric(
        "tidelog_ingest_last_batch_timestamp_seconds", "gauge", "When it was done, Unix time."
    ),
    "seen": Metric(
        "tidelog_ingest_last_look_timestamp_seconds", "gauge", "When the log was looked at last."
    ),
}


class MetricsFile:
    """A listener of a run that writes its metrics at every event."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._values: dict[str, float] = dict.fromkeys(
            ("rows", "quarantined", "batches", "restarts"), 0
        )
        self._write()

    def __call__(self, event: IngestEvent) -> None:
        match event:
            case IngestProgress():
                self._values["rows"] += event.rows
                self._values["quarantined"] += event.quarantined
                self._values["batches"] += 1
                self._values["seconds"] = event.duration_ms / 1000
                self._values["done"] = self._values["seen"] = self._now()
                self._lag(event.lag)
            case IngestIdle():
                self._values["seen"] = self._now()
                self._lag(event.lag)
            case IngestRestart():
                self._values["restarts"] = event.restarts
        self._write()

    def _lag(self, lag: int | None) -> None:
        if lag is not None:
            self._values["lag"] = lag

    def _write(self) -> None:
        """Replace the file atomically."""
        lines: list[str] = []
        for key, metric in METRICS.items():
            if key in self._values:
                lines.append(f"# HELP {metric.name} {metric.help}")
                lines.append(f"# TYPE {metric.name} {metric.kind}")
                lines.append(f"{metric.name} {self._values[key]:.16g}")
        staging = self._path.with_name(self._path.name + ".tmp")
        try:
            staging.write_text("\n".join(lines) + "\n")
            staging.replace(self._path)
        except OSError as error:
            raise JobError(
                f"the metrics cannot be written to {self._path}: {error.strerror}"
            ) from error
