"""`tidelog append`."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Final

import typer

from app.client.access import with_access
from app.client.appender import DEFAULT_BATCH_RECORDS, Appender, AppendReport
from app.client.commands.session import JsonOption, ServerOption, TopicArgument, session
from app.client.connection import DEFAULT_SERVER
from app.client.failures import BadInput
from app.client.record_lines import Fields, RecordLine, read_documents, read_raw, read_records

LINGER_S: Final = 0.1
"""How long a line waits for others before it is sent."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024


def arriving_lines(descriptor: int, *, on_linger: Callable[[], object]) -> Iterator[bytes]:
    """Yield lines without their line feed; the last one may lack it.

    `on_linger` is called every `LINGER_S`, whether input arrives or not.
    """
    lines_count = unfinished_bytes = 0
    unfinished: list[bytes] = []
    for chunk in _chunks(descriptor, on_linger):
        end = chunk.rfind(b"\n")
        if end >= 0:
            lines = b"".join([*unfinished, chunk[:end]]).split(b"\n")
            yield from lines
            lines_count, unfinished, unfinished_bytes = lines_count + len(lines), [], 0
        unfinished.append(chunk[end + 1 :])
        unfinished_bytes += len(unfinished[-1])
        if unfinished_bytes > MAX_LINE_BYTES:
            raise BadInput(lines_count + 1, f"it is longer than {MAX_LINE_BYTES} bytes")
    if unfinished_bytes:
        yield b"".join(unfinished)


def _chunks(descriptor: int, on_linger: Callable[[], object]) -> Iterator[bytes]:
    due = time.monotonic() + LINGER_S
    while True:
        wait_s = due - time.monotonic()
        if wait_s <= 0 or not select.select([descriptor], [], [], wait_s)[0]:
            on_linger()
            due = time.monotonic() + LINGER_S
        elif chunk := os.read(descriptor, _READ_BYTES):
            yield chunk
        else:
            return


_STANDARD_INPUT: Final = 0  # its file descriptor


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
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Each line, text or JSON, becomes a record's value as it is."),
    ] = False,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Records in one request.")
    ] = DEFAULT_BATCH_RECORDS,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Append records from standard input, one JSON record per line.

    echo '{"key": "a", "value": {"n": 1}}' | tidelog append events
    tidelog append flights --key-field carrier < flights.ndjson
    journalctl -o json -f | tidelog append logs --raw

    Every record is on disk when the command succeeds. Lost requests and a
    service that restarts are retried for a minute, without duplicates. A line
    is sent at most a tenth of a second after it arrives. A record with a key
    goes to the partition that Kafka's producers choose, a record without a
    key to any partition.
    """
    parse = _line_parser(raw=raw, documents=documents, fields=Fields(key_field, timestamp_field))
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
                lines = arriving_lines(_STANDARD_INPUT, on_linger=appender.flush)
                for record in parse(lines):
                    appender.add(record)
        except BaseException:
            terminal.notice(f"at least {appender.report.records:,} records are in the log")
            raise
        seconds = time.monotonic() - started
        terminal.result(*outcome(topic, appender.report, seconds))


def _line_parser(
    *, raw: bool, documents: bool, fields: Fields
) -> Callable[[Iterable[bytes]], Iterator[RecordLine]]:
    is_document = documents or fields != Fields()
    if raw and is_document:
        raise typer.BadParameter(
            "--raw appends lines as they are and excludes the options for documents"
        )
    if raw:
        return read_raw
    return partial(read_documents, fields=fields) if is_document else read_records


def outcome(topic: str, report: AppendReport, seconds: float) -> tuple[dict[str, object], str]:
    """Return the summary: for programs, and for people."""
    records = "1 record" if report.records == 1 else f"{report.records:,} records"
    sentence = f"{records} appended to {topic} in {seconds:.1f} s"
    if report.duplicates:
        sentence += (
            f"; {report.duplicates:,} of them were already in the log, by an earlier attempt"
        )
    return {
        "topic": topic,
        "records": report.records,
        "requests": report.requests,
        "duplicates": report.duplicates,
        "by_partition": {str(p): n for p, n in sorted(report.by_partition.items())},
        "seconds": round(seconds, 3),
    }, sentence
