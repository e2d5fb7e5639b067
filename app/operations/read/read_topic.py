"""Read all partitions of a topic, a page at a time; the token holds every partition's offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from app.codecs.paging import decode_token, encode_token, malformed_token
from app.codecs.positions import Position, Positions, encode_positions, parse_positions
from app.codecs.receipts import to_json
from app.http.answers import JSON, JSON_WITH_TEXT_OFFSETS, NO_STORE, Answer
from app.operations.exchange import Exchange
from app.operations.read.fetch import ensure_log_id
from app.operations.read.fetch_many import VARY, Fetch, Part
from app.operations.service import Service
from app.store.port import Partition
from engine.errors import LogReplaced, TooLarge
from schemas.fetch_many import FetchRequest, PartitionFetch, TopicReadParameters


async def read_topic(exchange: Exchange, topic: str, wanted: TopicReadParameters) -> Answer:
    """Return the next page; raises what a read of any of its partitions raises."""
    partitions = topic_partitions(exchange.service, topic)
    topic_id = partitions[0].topic_id
    positions = _positions(wanted.page_token, partitions)
    fetch = Fetch(exchange, _request(partitions, positions, wanted))
    await fetch.begin()
    _ensure_read(fetch.parts)
    entries = await fetch.entries()
    _ensure_read(fetch.parts)
    here = encode_positions(
        topic_id,
        (
            Position(part.wanted.partition, part.next_offset, part.fetched.leader_epoch)
            for part in fetch.parts
            if part.fetched is not None  # every part is read, or the page has failed
        ),
    )
    members = {
        "topic": topic,
        "partitions": [
            msgspec.Raw(entries[id(part)]) for part in fetch.parts if part.records_count
        ],
        "next_page_token": encode_token(here),
        "is_at_end": all(part.is_at_end for part in fetch.parts),
    }
    body = to_json(members)
    exchange.ticket.exchange_answer(len(body))
    content_type = JSON_WITH_TEXT_OFFSETS if wanted.offsets == "string" else JSON
    return Answer(200, [(b"content-type", content_type), NO_STORE, VARY], body)


def topic_partitions(service: Service, topic: str) -> Sequence[Partition]:
    """Return all partitions of a topic; raises TooLarge above `max_fetch_partitions`."""
    partitions = service.partitions(topic)
    limit = service.settings.max_fetch_partitions
    if len(partitions) > limit:
        raise TooLarge(
            f"the {len(partitions)} partitions of the topic exceed max_fetch_partitions; read "
            "them one by one, or some with fetchMany",
            limit="max_fetch_partitions",
            limit_bytes=limit,
            actual_bytes=len(partitions),
        )
    return partitions


def _positions(page_token: str | None, partitions: Sequence[Partition]) -> Mapping[int, int] | None:
    """Return the next offsets that a token holds; None without one.

    Raises MalformedRequest, and LogReplaced.
    """
    if page_token is None:
        return None
    positions = parse_positions(decode_token(page_token))
    offsets = None if positions is None else next_offsets(positions, partitions)
    if offsets is None:
        raise malformed_token()
    return offsets


def next_offsets(positions: Positions, partitions: Iterable[Partition]) -> Mapping[int, int] | None:
    """Return where to go on in each partition; None if one is named that the topic has not.

    Raises LogReplaced if the topic was created again since, or one of its logs was truncated.
    """
    by_number = {partition.number: partition for partition in partitions}
    topic_id = by_number[0].topic_id
    if positions.topic_id not in {"", topic_id}:
        raise LogReplaced(
            "what is resumed was read from another topic of this name",
            expected_log_id=positions.topic_id,
            log_id=topic_id,
        )
    if not positions.of.keys() <= by_number.keys():
        return None
    for number, _, epoch in positions.of.values():
        if epoch is not None:
            partition = by_number[number]
            ensure_log_id(partition, partition.log_id_at(epoch))
    return {one.partition: one.next_offset for one in positions.of.values()}


def _request(
    partitions: Sequence[Partition],
    positions: Mapping[int, int] | None,
    wanted: TopicReadParameters,
) -> FetchRequest:
    """Return the fetch of all partitions.

    A partition that the token does not name was added since: it is read from its start.
    """

    def start(number: int) -> int | str:
        return wanted.offset if positions is None else positions.get(number, "earliest")

    return FetchRequest(
        partitions=[
            PartitionFetch(
                topic=one.topic,
                partition=one.number,
                offset=start(one.number),
                isolation=wanted.isolation,
                on_out_of_range=wanted.on_out_of_range,
            )
            for one in partitions
        ],
        max_bytes=wanted.max_bytes,
        max_records=wanted.max_records,
        encoding=wanted.encoding,
        offsets=wanted.offsets,
    )


def _ensure_read(parts: Sequence[Part]) -> None:
    for part in parts:
        if part.error is not None:
            raise part.error
