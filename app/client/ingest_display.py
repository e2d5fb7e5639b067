"""The output of `tidelog ingest`. It imports Spark, so it is imported on demand."""

from __future__ import annotations

from typing import Final

import msgspec

from app.client.terminal import Meter, Terminal
from pyspark_tidelog.ingest.job import (
    IngestEvent,
    IngestIdle,
    IngestJob,
    IngestProgress,
    IngestReport,
    IngestRestart,
)

_NAMES: Final = {IngestProgress: "progress", IngestIdle: "idle", IngestRestart: "restart"}


class IngestDisplay:
    """Shows a run: JSON lines with `--json`, a bar on a terminal, otherwise plain lines."""

    def __init__(self, terminal: Terminal, meter: Meter, what: str) -> None:
        self._terminal = terminal
        self._meter = meter
        self._what = what

    def __call__(self, event: IngestEvent) -> None:
        if self._terminal.as_json:
            self._terminal.json({"event": _NAMES[type(event)], **msgspec.to_builtins(event)})
            return
        match event:
            case IngestProgress():
                self._meter.advance(event.rows)
                self._meter.say(f"{self._what}{_behind(event.lag)}")
                self._terminal.plain(_line(event))
            case IngestIdle():
                self._meter.say(f"{self._what}{_behind(event.lag)}")
            case _:
                self._terminal.notice(f"{event.reason}; restarting in {event.pause_s:.0f} s")


def finished(job: IngestJob, report: IngestReport) -> str:
    """Return the summary of a run."""
    ended = "stopped" if report.is_stopped else "done"
    bad = f", {report.quarantined:,} of them in quarantine" if report.quarantined else ""
    return (
        f"{ended}: {report.rows:,} new rows in {job.to}{bad}, in {report.batches} micro-batch(es)"
    )


def _line(event: IngestProgress) -> str:
    bad = f", {event.quarantined:,} in quarantine" if event.quarantined else ""
    took = f" in {event.duration_ms / 1000:.1f} s"
    return f"micro-batch {event.batch_id}: {event.rows:,} rows{bad}{took}{_behind(event.lag)}"


def _behind(lag: int | None) -> str:
    return "" if lag is None else f", lag {lag:,}"
