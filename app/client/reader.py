"""Pages of one partition: up to the committed end at the start, or without end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from app.client.connection import Connection, Request, topic_path
from app.client.failures import Unreachable

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
    connection: Connection, topic: str, partition: int, start: str, *, max_records: int | None
) -> Iterator[Page]:
    """Yield the records that are committed when the first page is read."""
    end_offset: int | None = None
    offset = start
    left = max_records
    while left is None or left > 0:
        page = _page(connection, topic, partition, offset, end_offset=end_offset, records=left)
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


def follow(connection: Connection, topic: str, partition: int, start: str) -> Iterator[Page]:
    """Yield existing and future records; ends only by an error."""
    offset = start
    while True:
        page = _page(connection, topic, partition, offset, wait_ms=_POLL_MS)
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
) -> Page:
    params: dict[str, str | int] = {"offset": offset, "max_bytes": _PAGE_BYTES}
    if end_offset is not None:
        params["end_offset"] = end_offset
    if records is not None:
        params["max_records"] = records
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
