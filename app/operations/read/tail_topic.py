"""Tail of a topic: one client that follows all its partitions, with the loop of any tail.

The id of each event names the next offset of every partition, so a client resumes exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from app.codecs.calls import OffsetSpec, ReadCall, last_event_id
from app.codecs.events import Page, topic_end_event, topic_offsets_event, with_id
from app.codecs.positions import Position, encode_positions, parse_positions
from app.errors import MalformedRequest
from app.http.answers import Headers
from app.operations.exchange import Exchange
from app.operations.read.fetch import fetch, start_offset
from app.operations.read.read_topic import next_offsets, topic_partitions
from app.operations.read.slow_clients import Delivery
from app.operations.read.tail import (
    EVENT_STREAM,
    STREAM_HEADERS,
    End,
    Leg,
    TailSession,
)
from app.operations.read.wait import DisconnectWatcher
from app.operations.request_content import negotiate
from app.store.port import Partition

_EARLIEST: Final = OffsetSpec(None, "earliest")

_PARTITIONS_ADDED: Final = End(
    "partitions_added", "the topic has more partitions now; resume to follow them", retryable=True
)


async def open_topic_tail(exchange: Exchange, topic: str, call: ReadCall) -> TopicTailSession:
    """Begin to follow a topic; raises what a read of each partition raises, and Overloaded.

    A partition that Last-Event-ID does not name was added since: it is followed from its start.
    """
    negotiate(exchange.head.get(b"accept"), (EVENT_STREAM,))
    partitions = topic_partitions(exchange.service, topic)
    positions = _resumed(exchange, partitions, call)
    exchange.ticket.tail()
    legs = []
    for partition in partitions:
        one = call
        if positions is not None:
            offset = positions.get(partition.number)
            one = call._replace(start=_EARLIEST if offset is None else OffsetSpec(offset))
        legs.append(await _leg(exchange, partition, one))
    return TopicTailSession(exchange, legs, call, topic)


def _resumed(
    exchange: Exchange, partitions: Iterable[Partition], call: ReadCall
) -> Mapping[int, int] | None:
    """Return the next offsets of Last-Event-ID; None without one. Raises LogReplaced."""
    text = last_event_id(call, exchange.head)
    if not text:
        return None
    positions = parse_positions(text)
    offsets = None if positions is None else next_offsets(positions, partitions)
    if offsets is None:
        raise MalformedRequest(
            "Last-Event-ID must be the id of an event of this tail: the topic id, the partitions "
            "with their leader epochs, and their next offsets",
            header="last-event-id",
        )
    return offsets


async def _leg(exchange: Exchange, partition: Partition, call: ReadCall) -> Leg:
    """Return the tail's place in one partition; its records are read in turn with the others'."""
    start = await start_offset(exchange, partition, call)
    start, fetched = await fetch(partition, call, start, max_bytes=0, minimum_one_batch=False)
    fetched = fetched._replace(segments=None)
    unread = Page(b"", b"", start, start, is_all=False, fetched=fetched, size_bytes=0, seen=None)
    return Leg(partition, unread)


class TopicTailSession(TailSession):
    """A tail of all partitions of a topic."""

    def __init__(self, exchange: Exchange, legs: Sequence[Leg], call: ReadCall, topic: str) -> None:
        super().__init__(exchange, legs, call)
        self._topic = topic
        self._partitions = exchange.service.topic(topic).partitions

    def headers(self) -> Headers:
        """Return the headers, without Log-*: they describe a single log."""
        return list(STREAM_HEADERS)

    def _id(self, moving: Leg | None = None, next_offset: int = 0) -> bytes:
        """Return the id of an event; one leg may be about to move."""
        return encode_positions(
            self._legs[0].partition.topic_id,
            (
                Position(
                    leg.partition.number,
                    next_offset if leg is moving else leg.offset,
                    leg.page.fetched.leader_epoch,
                )
                for leg in self._legs
            ),
        ).encode()

    def _records(self, leg: Leg, page: Page) -> bytes:
        return with_id(page.event, self._id(leg, page.next_offset))

    def _skip(self, leg: Leg, page: Page) -> bytes:
        moved = (leg.partition, page.fetched, page.next_offset)
        moved_id = self._id(leg, page.next_offset)
        as_text = self._call.offsets_as_text
        return topic_offsets_event(self._topic, (moved,), moved_id, as_text=as_text)

    def _heartbeat(self) -> bytes:
        offsets = ((leg.partition, leg.page.fetched, leg.offset) for leg in self._legs)
        as_text = self._call.offsets_as_text
        return topic_offsets_event(self._topic, offsets, self._id(), as_text=as_text)

    def _last(self, end: End) -> bytes:
        return topic_end_event(self._topic, end._asdict(), self._id())

    def _path(self) -> str:
        return f"/v1/topics/{self._topic}/tail"

    def _due_end(self, delivery: Delivery, departure: DisconnectWatcher, leg: Leg) -> End | None:
        end = super()._due_end(delivery, departure, leg)
        if end is None and self._service.topic(self._topic).partitions > self._partitions:
            return _PARTITIONS_ADDED
        return end
