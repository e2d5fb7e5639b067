"""Server-sent events of a tail as bytes (WHATWG HTML, 9.2): name, id, one line of data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from app.codecs.json_parts import on_one_line
from app.codecs.receipts import shown_marks, to_json
from app.store.port import Partition
from engine.log.results import Fetched
from engine.state.watermarks import Watermarks
from engine.types import Buffer


class Page(NamedTuple):
    """The next page of a tail; offsets as in a read."""

    event: bytes
    """The records event; empty if there are no records to show."""
    chunk: bytes
    """The event as a chunk of HTTP/1.1; empty if it is larger than one write."""
    start: int
    next_offset: int
    is_all: bool
    """Whether the page reached the readable end: the next one needs a commit."""
    fetched: Fetched
    """The read that the page shows."""
    size_bytes: int
    """Size of the stored batches that it shows."""
    seen: Page | None
    """The same page without its event, for tails that sent it; None if this is that page."""


class Look(NamedTuple):
    """A page that one tail read in a commit's callback, shared with tails at the same offset."""

    seen: Page
    """The last page of those tails, by identity."""
    marks: Watermarks
    """The log's offsets at that moment."""
    log_id: str
    now: float
    """The time of that moment, by the loop's clock."""
    page: Page


def event_id(partition: Partition, fetched: Fetched, next_offset: int) -> bytes:
    """Return the id of an event: where its reader goes on, and in which log."""
    return f"{partition.log_id_at(fetched.leader_epoch)}:{next_offset}".encode()


def records_event(page: Buffer, event_id: bytes) -> bytes:
    """Return records as one event; `page` is the body that readRecords answers.

    Line breaks inside stored JSON become spaces: in an event a line break ends a line.
    """
    return _event(b"records", event_id, bytes(page))


def with_id(event: bytes, event_id: bytes) -> bytes:
    """Return the records event of a partition with another id."""
    return _event_head(b"records", event_id) + event[event.index(b"data: ") :]


def offsets_event(
    partition: Partition, fetched: Fetched, next_offset: int, *, as_text: bool
) -> bytes:
    """Return the log's offsets as one event."""
    members = _offsets_of(partition, fetched, next_offset, as_text=as_text)
    return _event(b"offsets", event_id(partition, fetched, next_offset), to_json(members))


def topic_offsets_event(
    topic: str,
    offsets: Iterable[tuple[Partition, Fetched, int]],
    event_id: bytes,
    *,
    as_text: bool,
) -> bytes:
    """Return the offsets of several logs of a topic as one event."""
    shown = [_offsets_of(*one, as_text=as_text) for one in offsets]
    return _event(b"offsets", event_id, to_json({"topic": topic, "partitions": shown}))


def _offsets_of(
    partition: Partition, fetched: Fetched, next_offset: int, *, as_text: bool
) -> dict[str, object]:
    marks = {"next_offset": next_offset, **shown_marks(fetched.watermarks)}
    return {
        "topic": partition.topic,
        "partition": partition.number,
        **({name: str(mark) for name, mark in marks.items()} if as_text else marks),
        "leader_epoch": fetched.leader_epoch,
    }


def end_event(
    partition: Partition,
    fetched: Fetched,
    end: Mapping[str, object],
    next_offset: int,
    *,
    as_text: bool,
) -> bytes:
    """Return the last event of a tail: the reason, and the next offset."""
    members = {
        "topic": partition.topic,
        "partition": partition.number,
        "next_offset": str(next_offset) if as_text else next_offset,
        **end,
    }
    return _event(b"end", event_id(partition, fetched, next_offset), to_json(members))


def topic_end_event(topic: str, end: Mapping[str, object], event_id: bytes) -> bytes:
    """Return the last event of a topic's tail; its id is where to resume."""
    return _event(b"end", event_id, to_json({"topic": topic, **end}))


def chunk_of(event: bytes) -> bytes:
    """Return an event as one chunk of a body (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(event), event)


def retry_line(retry_ms: int) -> bytes:
    """Return the event with EventSource's reconnection delay."""
    return b"retry: %d\n" % retry_ms


EVENT_FRAME_BYTES: Final = 192
"""At least what an event has besides its data."""


def _event(name: bytes, event_id: bytes, data: bytes) -> bytes:
    data = on_one_line(data.replace(b"\n", b" ").replace(b"\r", b" "))  # between tokens of JSON
    return b"%bdata: %b\n\n" % (_event_head(name, event_id), data)


def _event_head(name: bytes, event_id: bytes) -> bytes:
    return b"event: %b\nid: %b\n" % (name, event_id)
