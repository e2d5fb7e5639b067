"""`tidelog append`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from app.client.access import with_access
from app.client.appender import DEFAULT_BATCH_RECORDS, Appender, AppendReport
from app.client.commands.session import JsonOption, ServerOption, TopicArgument, session
from app.client.connection import DEFAULT_SERVER
from app.client.record_lines import Fields, RecordLine, read_documents, read_records


@with_access
def append(
    *,
    topic: TopicArgument,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Append all records to this partition."),
    ] = None,
    documents: Annotated[
        bool,
        typer.Option(
            "--documents", help="Each line is a JSON document and becomes a record's value."
        ),
    ] = False,
    key_field: Annotated[
        str | None,
        typer.Option("--key-field", help="Implies --documents: this field is the key."),
    ] = None,
    timestamp_field: Annotated[
        str | None,
        typer.Option(
            "--timestamp-field",
            help="Implies --documents: this field, ms or ISO 8601, is the record's time.",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Records in one request.")
    ] = DEFAULT_BATCH_RECORDS,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Append records from standard input, one JSON record per line.

    echo '{"key": "a", "value": {"n": 1}}' | tidelog append events
    tidelog append flights --key-field carrier < flights.ndjson

    Every record is on disk when the command succeeds. Lost requests and a
    service that restarts are retried for a minute, without duplicates. A
    record with a key goes to the partition that Kafka's producers choose, a
    record without a key to any partition.
    """
    fields = Fields(key_field, timestamp_field)
    lines = sys.stdin.buffer
    records: Iterator[RecordLine]
    if documents or fields != Fields():
        records = read_documents(lines, fields)
    else:
        records = read_records(lines)
    started = time.monotonic()
    with (
        session(server, as_json=as_json) as (connection, terminal),
        terminal.progress(f"appending to {topic}") as meter,
    ):
        appender = Appender(
            connection,
            topic,
            partition=partition,
            batch_records=batch,
            on_appended=meter.advance,
        )
        try:
            with appender:
                for record in records:
                    appender.add(record)
        except BaseException:
            terminal.notice(f"{appender.report.records:,} records are certainly in the log")
            raise
        seconds = time.monotonic() - started
        terminal.result(*outcome(topic, appender.report, seconds))


def outcome(topic: str, report: AppendReport, seconds: float) -> tuple[dict[str, object], str]:
    """Return the summary: for programs, and for people."""
    records = "1 record" if report.records == 1 else f"{report.records:,} records"
    sentence = f"{records} appended to {topic} in {seconds:.1f} s"
    if report.duplicates:
        sentence += f"; {report.duplicates:,} of them were there already when a retry asked again"
    return {
        "topic": topic,
        "records": report.records,
        "requests": report.requests,
        "duplicates": report.duplicates,
        "by_partition": {str(p): n for p, n in sorted(report.by_partition.items())},
        "seconds": round(seconds, 3),
    }, sentence
