"""`tidelog ingest`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from app.client.commands.session import JsonOption, ServerOption, terminal_session
from app.client.connection import DEFAULT_SERVER
from app.client.failures import Failure
from app.client.terminal import Meter, Terminal

if TYPE_CHECKING:
    from pyspark_tidelog.ingest import IngestJob, IngestProgress, IngestReport


def ingest(
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", help="What to read; several with commas.")],
    to: Annotated[str, typer.Option("--to", help="Where to: parquet:PATH.")],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", help="Where the job remembers how far it is.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until Ctrl-C instead of ending at the end.")
    ] = False,
    spark_log: Annotated[
        Path | None, typer.Option("--spark-log", help="Keep what Spark has to say in this file.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Bring a topic into Parquet with Spark, each record once; again, only what is new.

    tidelog ingest --topic flights --to parquet:lake --checkpoint lake.state

    It may be stopped, or killed, at any time: the next run with the same
    checkpoint goes on where it was, and the lake shows each record once.
    Spark uses the machine's Java 17 or newer, else the one that came along.
    """
    from pyspark_tidelog.errors import TidelogError  # noqa: PLC0415 - Spark takes a second to load
    from pyspark_tidelog.ingest import IngestJob, run  # noqa: PLC0415 - the same

    job = IngestJob(server=server, topics=topic, to=to, checkpoint=checkpoint, follow=follow)
    with (
        terminal_session(as_json=as_json) as terminal,
        terminal.progress(f"ingesting {topic}") as meter,
    ):
        try:
            report = run(job, _Teller(terminal, meter), log_file=spark_log)
        except TidelogError as error:
            raise Failure(str(error)) from error
        terminal.result(
            {"event": "finished", **msgspec.to_builtins(report)}, _sentence(job, report)
        )


class _Teller:
    """Tells of each micro-batch: a line of JSON for a program, the bar for a person."""

    def __init__(self, terminal: Terminal, meter: Meter) -> None:
        self._terminal = terminal
        self._meter = meter

    def __call__(self, progress: IngestProgress) -> None:
        self._meter.advance(progress.rows)
        if self._terminal.as_json:
            self._terminal.json({"event": "progress", **msgspec.to_builtins(progress)})


def _sentence(job: IngestJob, report: IngestReport) -> str:
    ended = "stopped" if report.is_stopped else "done"
    return f"{ended}: {report.rows:,} new rows in {job.to}, in {report.batches} micro-batch(es)"
