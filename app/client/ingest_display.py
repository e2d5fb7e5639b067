"""The output of `tidelog ingest`. It imports Spark, so it is imported on demand."""

from __future__ import annotations

from typing import Final

import msgspec

from app.client.terminal import Meter, Terminal
from pyspark_tidelog.ingest.job import (
    IngestCompaction,
    IngestEvent,
    IngestIdle,
    IngestJob,
    IngestProgress,
    IngestReport,
    IngestRestart,
    IngestStopping,
)

_NAMES: Final = {
    IngestProgress: "progress",
    IngestIdle: "idle",
    IngestRestart: "restart",
    IngestCompaction: "compaction",
    IngestStopping: "stopping",
}


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
                self._meter.say(f"{self._what}{_behind(event)}")
                self._terminal.plain(_line(event))
            case IngestIdle():
                self._meter.say(f"{self._what}{_behind(event)}")
            case IngestCompaction(error=None):
                if event.files_before:
                    self._terminal.plain(_merged(event))
            case IngestCompaction():
                self._terminal.notice(f"{event.error}; the job continues")
            case IngestStopping():
                self._terminal.notice("stopping after the current micro-batch")
            case _:
                self._terminal.notice(f"{event.reason}; restarting in {event.pause_s:.0f} s")


def finished(job: IngestJob, report: IngestReport) -> str:
    """Return the summary of a run."""
    ended = "stopped" if report.is_stopped else "done"
    bad = f", {report.quarantined:,} of them in quarantine" if report.quarantined else ""
    if report.with_unknown_fields:
        bad += f", {report.with_unknown_fields:,} of them with fields that the schema does not have"
    where = job.to if job.topic_pattern is None else f"{len(report.tables)} tables of {job.to}"
    rate = report.rows / report.seconds if report.seconds else 0.0
    return (
        f"{ended}: {report.rows:,} new rows in {where}{bad}, in {report.batches} micro-batch(es) "
        f"and {_duration(report.seconds)} ({rate:,.0f}/s)"
    )


def show_tables(terminal: Terminal, report: IngestReport) -> None:
    """Print what a run did, table by table."""
    rows = [
        (one.table, f"{one.rows:,}", f"{one.quarantined:,}", f"{one.with_unknown_fields:,}")
        for one in report.tables
    ]
    if not terminal.as_json and rows:
        header = ("table", ">new rows", ">in quarantine", ">with unknown fields")
        terminal.table(header, rows)


def _line(event: IngestProgress) -> str:
    bad = f", {event.quarantined:,} in quarantine" if event.quarantined else ""
    if event.with_unknown_fields:
        bad += f", {event.with_unknown_fields:,} with unknown fields"
    took = f" in {event.duration_ms / 1000:.1f} s"
    return f"micro-batch {event.batch_id}: {event.rows:,} rows{bad}{took}{_behind(event)}"


def _merged(event: IngestCompaction) -> str:
    return (
        f"{event.table}: {event.files_before:,} files became {event.files_after:,} "
        f"in {event.seconds:.1f} s"
    )


def _behind(event: IngestProgress | IngestIdle) -> str:
    if event.lag is None:
        return ""
    age = "" if event.lag_s is None or not event.lag else f" ({_duration(event.lag_s)})"
    return f", lag {event.lag:,}{age}"


def _duration(seconds: float) -> str:
    """Return a duration in the largest unit that keeps two digits."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.1f} s"
