"""`tidelog read` and `tidelog tail`."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import httpx
import msgspec
import typer

from app.client.access import with_access
from app.client.commands.session import JsonOption, ServerOption, TopicArgument, session
from app.client.connection import DEFAULT_SERVER, Connection, Request, partitions_of, topic_path
from app.client.failures import Failure, Unreachable
from app.client.terminal import Terminal, printable

_PAGE_BYTES = 1024 * 1024
_POLL_MS = 30_000


@dataclass(frozen=True, slots=True)
class Page:
    """Records of one partition as the service wrote them, one JSON object per line."""

    partition: int
    lines: list[bytes]
    next_offset: int
    high_watermark: int


def read_to_end(
    connection: Connection,
    topic: str,
    partition: int,
    start: str,
    *,
    max_records: int | None,
    wanted: str | None = None,
) -> Iterator[Page]:
    """Yield the records that are committed when the first page is read.

    `wanted` is a filter, as the service reads it.
    """
    end_offset: int | None = None
    offset = start
    left = max_records
    while left is None or left > 0:
        page = _page(
            connection,
            topic,
            partition,
            offset,
            end_offset=end_offset,
            records=left,
            wanted=wanted,
        )
        if page.lines:
            yield page
        if end_offset is None:
            end_offset = page.high_watermark
        if page.next_offset >= end_offset:
            return
        if offset == str(page.next_offset):
            raise Unreachable(connection.url, f"the pages of {topic} do not go on; is it tidelog?")
        left = None if left is None else left - len(page.lines)
        offset = str(page.next_offset)


def follow(
    connection: Connection, topic: str, partition: int, start: str, wanted: str | None = None
) -> Iterator[Page]:
    """Yield existing and future records; ends only by an error."""
    offset = start
    while True:
        page = _page(connection, topic, partition, offset, wait_ms=_POLL_MS, wanted=wanted)
        if page.lines:
            yield page
        offset = str(page.next_offset)


def _page(
    connection: Connection,
    topic: str,
    partition: int,
    offset: str,
    *,
    end_offset: int | None = None,
    records: int | None = None,
    wait_ms: int = 0,
    wanted: str | None = None,
) -> Page:
    params: dict[str, str | int] = {"offset": offset, "max_bytes": _PAGE_BYTES}
    if end_offset is not None:
        params["end_offset"] = end_offset
    if records is not None:
        params["max_records"] = records
    if wanted is not None:
        params["filter"] = wanted
    if wait_ms:
        params.update(min_bytes=1, max_wait_ms=wait_ms)
    path = topic_path(topic, partition, "records")
    accept = {"Accept": "application/x-ndjson"}
    response = connection.send(Request("GET", path, params, accept, wait_ms=wait_ms))
    return Page(
        partition=partition,
        lines=[line for line in response.content.split(b"\n") if line],
        next_offset=_header(response, "Log-Next-Offset"),
        high_watermark=_header(response, "Log-High-Watermark"),
    )


def _header(response: httpx.Response, name: str) -> int:
    try:
        return int(response.headers[name])
    except (KeyError, ValueError) as error:
        raise Unreachable(
            str(response.url), f"the response lacks {name}; is it tidelog?"
        ) from error


_OFFSET = re.compile(r"earliest|latest|[0-9]+|ts:-?[0-9]+")
_PAGES_AHEAD = 4


def _offset(text: str) -> str:
    if not _OFFSET.fullmatch(text):
        raise typer.BadParameter("one of earliest, latest, a number, or ts:<ms since the epoch>")
    return text


PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Partition; default: all.")
]
OffsetOption = Annotated[
    str,
    typer.Option(
        "--offset", "-o", callback=_offset, help="earliest, latest, a number, or ts:<ms>."
    ),
]
FilterOption = Annotated[
    str | None,
    typer.Option("--filter", "-f", help='Only records that match, such as: header.tenant = "7".'),
]
MaxRecordsOption = Annotated[
    int | None, typer.Option("--max-records", "-n", min=1, help="Stop after this many records.")
]


@with_access
def read(
    *,
    topic: TopicArgument,
    partition: PartitionOption = None,
    offset: OffsetOption = "earliest",
    max_records: MaxRecordsOption = None,
    wanted: FilterOption = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Print the current records of a topic, partition by partition, then end.

    tidelog read flights --partition 0 --offset 100 --max-records 5
    tidelog read flights --offset ts:1356998400000 --json | jq .value
    tidelog read flights --filter 'header.tenant = "7" and value/delay > 60'
    """
    with session(server, as_json=as_json) as (connection, terminal):
        left = max_records
        for number in _partitions(connection, topic, partition):
            pages = read_to_end(connection, topic, number, offset, max_records=left, wanted=wanted)
            for page in pages:
                _print(terminal, page)
                left = None if left is None else left - len(page.lines)
            if left == 0:
                return


@with_access
def tail(
    *,
    topic: TopicArgument,
    partition: PartitionOption = None,
    offset: OffsetOption = "latest",
    max_records: MaxRecordsOption = None,
    wanted: FilterOption = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Print new records as soon as they are on disk, until Ctrl-C.

    tidelog tail flights
    tidelog tail flights --offset earliest --json
    """
    with session(server, as_json=as_json) as (connection, terminal):
        left = max_records
        pages: queue.Queue[Page | Failure] = queue.Queue(_PAGES_AHEAD)
        for number in _partitions(connection, topic, partition):
            endless = follow(connection, topic, number, offset, wanted)
            threading.Thread(target=_pass_on, args=(endless, pages), daemon=True).start()
        while left is None or left > 0:
            page = pages.get()
            if isinstance(page, Failure):
                raise page
            shown = page.lines[:left]
            _print(terminal, Page(page.partition, shown, page.next_offset, page.high_watermark))
            left = None if left is None else left - len(shown)


def _pass_on(endless: Iterator[Page], pages: queue.Queue[Page | Failure]) -> None:
    """Pass on the pages of one partition, and finally the failure that stopped it."""
    try:
        while True:
            pages.put(next(endless))
    except Failure as failure:
        pages.put(failure)


def _partitions(connection: Connection, topic: str, partition: int | None) -> list[int]:
    if partition is not None:
        return [partition]
    return list(range(partitions_of(connection, topic)))


class _Shown(msgspec.Struct):
    """The columns of a record for people; values stay JSON text."""

    offset: int
    timestamp: int
    key: msgspec.Raw
    value: msgspec.Raw


_decoder = msgspec.json.Decoder(_Shown)


def _print(terminal: Terminal, page: Page) -> None:
    if terminal.as_json:
        prefix = b'{"partition":%d,' % page.partition
        terminal.raw(b"".join(prefix + line.removeprefix(b"{") + b"\n" for line in page.lines))
    else:
        text = "\n".join(_shown(page.partition, line) for line in page.lines)
        terminal.raw(text.encode() + b"\n" if text else b"")


def _shown(partition: int, line: bytes) -> str:
    record = _decoder.decode(line)
    place = f"{partition}:{record.offset}"
    columns = (place, _moment(record.timestamp), _text(record.key), _text(record.value))
    return "  ".join(columns)


def _moment(timestamp_ms: int) -> str:
    """Return UTC in ISO 8601; a time outside the calendar stays a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(raw: msgspec.Raw) -> str:
    """Return a string without quotes, else JSON; nothing in it steers a terminal."""
    value = bytes(raw)
    if value.startswith(b'"'):
        return printable(msgspec.json.decode(value, type=str))
    return printable(value.decode())
