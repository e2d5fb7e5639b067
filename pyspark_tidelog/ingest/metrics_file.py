"""The job's metrics, in a file for Prometheus' textfile collector."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.ingest.job import (
    IngestCompaction,
    IngestEvent,
    IngestIdle,
    IngestProgress,
    IngestRestart,
    IngestStopping,
)

# Each metric, without the prefix `tidelog_ingest_`, and its help text.
METRICS: Final = {
    "rows_total": "Records written.",
    "quarantined_rows_total": "Records written to the quarantine.",
    "rows_with_unknown_fields_total": "Records with fields that the schema does not have.",
    "batches_total": "Micro-batches finished.",
    "restarts_total": "Restarts after a failure.",
    "compacted_files_total": "Small files that were merged into larger ones.",
    "lag_records": "Offsets between the lake and the end of the log.",
    "lag_seconds": "Age of the oldest record that waits, by its timestamp.",
    "last_batch_seconds": "Duration of the last micro-batch.",
    "last_batch_timestamp_seconds": "Unix time at which the last micro-batch was finished.",
    "last_look_timestamp_seconds": "Unix time at which the job last asked for new records.",
}


class MetricsFile:
    """A listener of a run that writes its metrics at every event."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        counters = (name for name in METRICS if name.endswith("_total"))
        self._values: dict[str, float] = dict.fromkeys(counters, 0)
        self._write()

    def __call__(self, event: IngestEvent) -> None:
        match event:
            case IngestProgress():
                self._values["rows_total"] += event.rows
                self._values["quarantined_rows_total"] += event.quarantined
                self._values["rows_with_unknown_fields_total"] += event.with_unknown_fields
                self._values["batches_total"] += 1
                self._values["last_batch_seconds"] = event.duration_ms / 1000
                self._polled(event.lag, event.lag_s)
                finished = self._values["last_look_timestamp_seconds"]
                self._values["last_batch_timestamp_seconds"] = finished
            case IngestIdle():
                self._polled(event.lag, event.lag_s)
            case IngestCompaction():
                self._values["compacted_files_total"] += event.files_before
            case IngestRestart():
                self._values["restarts_total"] = event.restarts
            case IngestStopping():
                return
        self._write()

    def _polled(self, lag: int | None, lag_s: float | None) -> None:
        self._values["last_look_timestamp_seconds"] = self._now()
        for name, value in (("lag_records", lag), ("lag_seconds", lag_s)):
            if value is not None:
                self._values[name] = value

    def _write(self) -> None:
        """Replace the file atomically."""
        lines: list[str] = []
        for key, description in METRICS.items():
            if key in self._values:
                name = f"tidelog_ingest_{key}"
                kind = "counter" if key.endswith("_total") else "gauge"
                lines += [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
                lines.append(f"{name} {self._values[key]:.16g}")
        staging = self._path.with_name(self._path.name + ".tmp")
        try:
            staging.write_text("\n".join(lines) + "\n")
            staging.replace(self._path)
        except OSError as error:
            raise JobError(
                f"the metrics cannot be written to {self._path}: {error.strerror}"
            ) from error
