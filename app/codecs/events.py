"""Server-sent events of a tail as bytes (WHATWG HTML, 9.2): name, id, one line of data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from app.codecs.receipts import shown_marks, to_json
from app.store.port import Partition
from engine.log.results import Fetched
from engine.state.watermarks import Watermarks
from engine.types import Buffer


class Page(NamedTuple):
    """What a tail finds where it stands; offsets as in a read."""

    event: bytes
    """The records; empty if there are none to show."""
    chunk: bytes
    """The same as a chunk of HTTP/1.1; empty if it is larger than a transport takes at once."""
    start: int
    next_offset: int
    is_all: bool
    """Whether nothing more could be read then: a commit has to come first."""
    fetched: Fetched
    """Without its data."""
    size_bytes: int
    """Of that data."""
    seen: Page | None
    """The same without what there is to send, for who has sent it; None if it is that itself."""


class Look(NamedTuple):
    """What one tail has found where a commit was told: the same for all who had seen the same."""

    seen: Page
    """What they have been told, the very same."""
    marks: Watermarks
    """Where the log was."""
    log_id: str
    now: float
    """When that was, on the loop's clock."""
    page: Page


def records_event(page: Buffer, next_offset: int) -> bytes:
    """Return records as one event; `page` is the body that readRecords answers.

    Line breaks inside stored JSON become spaces: in an event a line break ends a line.
    """
    line = bytes(page).replace(b"\n", b" ").replace(b"\r", b" ")
    return _event(b"records", next_offset, line)


def offsets_event(
    partition: Partition, fetched: Fetched, next_offset: int, *, as_text: bool
) -> bytes:
    """Return where the log is as one event."""
    marks = {"next_offset": next_offset, **shown_marks(fetched.watermarks)}
    members = {
        "topic": partition.topic,
        "partition": partition.number,
        **({name: str(mark) for name, mark in marks.items()} if as_text else marks),
        "leader_epoch": fetched.leader_epoch,
    }
    return _event(b"offsets", next_offset, to_json(members))


def end_event(
    partition: Partition, end: Mapping[str, object], next_offset: int, *, as_text: bool
) -> bytes:
    """Return the last event of a tail: why it ends, and where to resume."""
    members = {
        "topic": partition.topic,
        "partition": partition.number,
        "next_offset": str(next_offset) if as_text else next_offset,
        **end,
    }
    return _event(b"end", next_offset, to_json(members))


def chunk_of(event: bytes) -> bytes:
    """Return an event as one chunk of a body (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(event), event)


def retry_line(retry_ms: int) -> bytes:
    """Return how long EventSource waits before it connects again."""
    return b"retry: %d\n" % retry_ms


def _event(name: bytes, next_offset: int, data: bytes) -> bytes:
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name, next_offset, data)
