"""`tidelog ingest`."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from pyspark_tidelog.ingest.job import IngestJob, IngestReport

_ROWS: Final = "The rows"
_RUN: Final = "The run"

TopicsOption: TypeAlias = Annotated[
    str, typer.Option("--topic", "-t", help="What to read; several with commas.")
]
ToOption: TypeAlias = Annotated[
    str, typer.Option("--to", help="parquet:PATH, delta:PATH or json:PATH.")
]
CheckpointOption: TypeAlias = Annotated[
    str, typer.Option("--checkpoint", help="Where the job remembers how far it is.")
]
FollowOption: TypeAlias = Annotated[
    bool, typer.Option("--follow", help="Go on until Ctrl-C instead of ending at the end.")
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
QuarantineOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--quarantine",
        help="Where values go that do not fit; _quarantine in the sink without it.",
        rich_help_panel=_ROWS,
    ),
]
HeadersOption: TypeAlias = Annotated[
    bool, typer.Option("--headers", help="Keep them, too.", rich_help_panel=_ROWS)
]
FromOption: TypeAlias = Annotated[
    str,
    typer.Option("--from", help="earliest or latest, of a new checkpoint.", rich_help_panel=_RUN),
]
BatchRecordsOption: TypeAlias = Annotated[
    int,
    typer.Option("--batch-records", min=1, help="At most in a micro-batch.", rich_help_panel=_RUN),
]
EveryOption: TypeAlias = Annotated[
    float,
    typer.Option("--every", min=0.1, help="Seconds between two looks.", rich_help_panel=_RUN),
]
MaxRestartsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-restarts",
        min=0,
        help="With --follow, failures in a row to live through; any number without it.",
        rich_help_panel=_RUN,
    ),
]
SkipLostOption: TypeAlias = Annotated[
    bool,
    typer.Option("--skip-lost", help="Go on where retention was faster.", rich_help_panel=_RUN),
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
    typer.Option("--metrics-file", help="Keep figures for Prometheus here.", rich_help_panel=_RUN),
]
SparkLogOption: TypeAlias = Annotated[
    Path | None, typer.Option("--spark-log", help="Keep what Spark has to say in this file.")
]


def ingest(
    *,
    topic: TopicsOption,
    to: ToOption,
    checkpoint: CheckpointOption,
    follow: FollowOption = False,
    schema: SchemaOption = None,
    partition_by: PartitionByOption = None,
    quarantine: QuarantineOption = None,
    headers: HeadersOption = False,
    start: FromOption = "earliest",
    batch_records: BatchRecordsOption = 1_000_000,
    every: EveryOption = 1.0,
    max_restarts: MaxRestartsOption = None,
    skip_lost: SkipLostOption = False,
    option: SourceOption = None,
    metrics_file: MetricsFileOption = None,
    spark_log: SparkLogOption = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Bring a topic into a lake with Spark, each record once; again, only what is new.

    tidelog ingest --topic flights --to parquet:lake --checkpoint lake.state
    tidelog ingest --topic flights --to delta:lake --checkpoint lake.state --schema infer

    It may be stopped, or killed, at any time: the next run with the same
    checkpoint goes on where it was, and the lake shows each record once.
    Spark uses the machine's Java 17 or newer, else the one that came along.

    The exit code is 0 if all is in the lake or the job was told to stop, 1 if
    it failed and may be run again, 3 if something has to be changed first.
    """
    require_spark_source(as_json=as_json)
    from pyspark_tidelog.ingest.job import IngestJob  # noqa: PLC0415 - Spark takes a second to load

    job = IngestJob(
        server=server,
        topics=topic,
        to=to,
        checkpoint=checkpoint,
        follow=follow,
        schema=schema,
        partition_by=tuple(partition_by or ()),
        quarantine=quarantine,
        include_headers=headers,
        starting_offsets=start,
        max_offsets_per_trigger=batch_records,
        trigger_s=every,
        max_restarts=max_restarts,
        fail_on_data_loss=not skip_lost,
        options=tuple(key_value(text) for text in option or ()),
    )
    with (
        terminal_session(as_json=as_json) as terminal,
        terminal.progress(f"ingesting {topic}") as meter,
    ):
        _run(job, terminal, meter, metrics_file=metrics_file, spark_log=spark_log)


def _run(
    job: IngestJob,
    terminal: Terminal,
    meter: Meter,
    *,
    metrics_file: Path | None,
    spark_log: Path | None,
) -> None:
    """Run the job and tell of it; a failure carries the exit code that fits."""
    from app.client.ingest_display import IngestDisplay, finished  # noqa: PLC0415 - as above
    from pyspark_tidelog.errors import (  # noqa: PLC0415 - the same
        JobFailed,
        ServiceError,
        TidelogError,
    )
    from pyspark_tidelog.ingest import run  # noqa: PLC0415 - the same
    from pyspark_tidelog.ingest.job import IngestEvent, Listener  # noqa: PLC0415 - the same
    from pyspark_tidelog.ingest.metrics_file import MetricsFile  # noqa: PLC0415 - the same

    try:
        display = IngestDisplay(terminal, meter, f"ingesting {job.topics}")
        listeners: list[Listener] = [
            display,
            *([MetricsFile(metrics_file)] if metrics_file else []),
        ]

        def tell(event: IngestEvent) -> None:
            for listener in listeners:
                listener(event)

        report: IngestReport = run(job, tell, log_file=spark_log)
    except (JobFailed, ServiceError) as error:
        is_permanent = isinstance(error, JobFailed) and error.is_permanent
        raise Failure(str(error), EXIT_REFUSED if is_permanent else 1) from error
    except TidelogError as error:
        raise Failure(str(error), EXIT_REFUSED) from error
    terminal.result({"event": "finished", **msgspec.to_builtins(report)}, finished(job, report))
