"""Leases over HTTP: join and renew, leave, and who holds what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from app.codecs.paging import MAX_PAGE_ENTRIES, decode_token, encode_token
from app.codecs.receipts import to_json
from app.http.answers import Answer, json_answer
from app.operations.exchange import Exchange
from app.operations.groups import ensure_shown_name
from app.operations.leases.group import GroupLeases, Hold, KnownTopic, Renewal, Worker
from app.security.rules import Action
from app.store.port import CursorKey, Partition
from engine.errors import LogOffline, NotFound, TooLarge
from engine.types import TopicPartition
from schemas.groups import LONGEST_GROUP_NAME
from schemas.leases import LONGEST_WORKER_NAME, MOST_PARTITIONS, RenewLease

RENEW_PERCENT: Final = 30
"""A lease is renewed after this part of it: two requests may get lost."""

WAITING_PERCENT: Final = 3
"""The same for a worker that others are about to release partitions to."""

STARTS_TOGETHER: Final = 16
"""Log starts that are asked for at a time, where each takes a request."""


async def renew_lease(exchange: Exchange, group: str, wanted: RenewLease) -> Answer:
    """Join a group or go on in it; return what the worker has, on disk."""
    service = exchange.service
    ensure_shown_name("group", group, LONGEST_GROUP_NAME)
    ensure_shown_name("worker", wanted.worker, LONGEST_WORKER_NAME)
    topics: dict[str, KnownTopic] = {}
    for name in wanted.topics:
        exchange.caller.ensure(Action.READ, name)
        await service.look_for(name, 0)
        topic = service.topic(name)
        topics[name] = KnownTopic(topic.topic_id, topic.partitions)
    _ensure_few(sum(known.partitions for known in topics.values()))
    released = [TopicPartition(one.topic, one.partition) for one in wanted.release]
    renewal = Renewal(topics, wanted.ttl_ms, released)
    leases = await service.leases.claim(group, wanted.worker, renewal, exchange.maker)
    # Another request may have ended the lease since: then it is one of nothing, and over.
    over = Worker(wanted.worker, frozenset(), wanted.ttl_ms, leases.time_ms)
    worker = leases.workers.get(wanted.worker, over)
    held = [(place, leases.holds[place]) for place in sorted(worker.held)]
    # The number of an answer is that of its partitions: both are taken before anything is awaited.
    body: dict[str, object] = {
        "group": group,
        "worker": worker.name,
        "generation": leases.generation,
        "expires_at": worker.deadline_ms,
        "renew_in_ms": worker.ttl_ms
        * (WAITING_PERCENT if worker.waiting else RENEW_PERCENT)
        // 100,
        "waiting": len(worker.waiting),
    }
    offsets = await _offsets(exchange, group, [place for place, _ in held])
    shown = [
        (hold, _entry(place, hold, offsets[place])) for place, hold in held if place in offsets
    ]
    body["partitions"] = [entry for hold, entry in shown if hold.until_ms is None]
    body["revoking"] = [
        {**entry, "expires_at": hold.until_ms} for hold, entry in shown if hold.until_ms is not None
    ]
    return json_answer(to_json(body))


async def release_lease(exchange: Exchange, group: str, worker: str) -> Answer:
    """Leave a group: its partitions can be given to others at once. It need not be a member."""
    leases = await exchange.service.leases.of_group(group)
    known = leases.workers.get(worker)
    if known is not None:
        for topic in known.topics:
            exchange.caller.ensure(Action.READ, topic)
        await exchange.service.leases.claim(group, worker, None, exchange.maker)
    return Answer(204, [], b"")


async def list_leases(
    exchange: Exchange, group: str, *, page_size: int, page_token: str | None
) -> Answer:
    """Return one page of the workers that have a topic that the caller may read."""
    leases = await exchange.service.leases.of_group(group)
    after = "" if page_token is None else decode_token(page_token)
    size = min(page_size, MAX_PAGE_ENTRIES)
    now_ms = exchange.service.clock.now_ms()
    workers = [
        one
        for name, one in sorted(leases.workers.items())
        if name > after
        and one.deadline_ms > now_ms
        and any(exchange.caller.may(Action.READ, topic) for topic in one.topics)
    ]
    page = workers[:size]
    body = {
        "group": group,
        "generation": leases.generation,
        "workers": [_shown(exchange, leases, one) for one in page],
        "next_page_token": encode_token(page[-1].name) if len(workers) > size else None,
    }
    return json_answer(to_json(body))


def _shown(exchange: Exchange, leases: GroupLeases, worker: Worker) -> dict[str, object]:
    may_read = {topic for topic in worker.topics if exchange.caller.may(Action.READ, topic)}
    held = [
        (place, leases.holds[place]) for place in sorted(worker.held) if place.topic in may_read
    ]
    return {
        "worker": worker.name,
        "topics": sorted(may_read),
        "expires_at": worker.deadline_ms,
        "waiting": len(worker.waiting),
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "fence": hold.fence,
                "expires_at": worker.deadline_ms if hold.until_ms is None else hold.until_ms,
                "revoking": hold.until_ms is not None,
            }
            for place, hold in held
        ],
    }


def _entry(place: TopicPartition, hold: Hold, offset: int) -> dict[str, object]:
    topic, partition = place
    return {"topic": topic, "partition": partition, "offset": offset, "fence": hold.fence}


async def _offsets(
    exchange: Exchange, group: str, places: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where each partition is read on; those that cannot be used are left out."""
    keys = {place: CursorKey(group, *place) for place in places}
    stored = await exchange.service.groups.positions(group, list(keys.values()))
    offsets: dict[TopicPartition, int] = {}
    unread: list[tuple[TopicPartition, Partition]] = []
    for place, key in keys.items():
        try:
            partition = exchange.service.partition(*place)
        except (NotFound, LogOffline):
            continue
        if key in stored:
            offsets[place] = stored[key]
        else:
            unread.append((place, partition))
    remote = [partition for _, partition in unread if not partition.is_local]
    for first in range(0, len(remote), STARTS_TOGETHER):
        some = remote[first : first + STARTS_TOGETHER]
        await asyncio.gather(*(partition.refresh() for partition in some))
    offsets.update((place, partition.watermarks.log_start_offset) for place, partition in unread)
    return offsets


def _ensure_few(partitions: int) -> None:
    if partitions > MOST_PARTITIONS:
        raise TooLarge(
            f"the topics have {partitions} partitions, more than {MOST_PARTITIONS}",
            limit="partitions of a lease",
            limit_bytes=MOST_PARTITIONS,
            actual_bytes=partitions,
        )
