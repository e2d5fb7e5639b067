"""Lag of a group: in offsets, and in time, that is the age of the oldest record not yet read."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from app.codecs.receipts import to_json
from app.codecs.stored import StoredRecords, View
from app.http.answers import Answer, json_answer
from app.operations.exchange import Exchange
from app.operations.groups import may_read, readable_cursors
from app.security.rules import Action
from app.store.port import CursorKey, Partition
from engine.errors import NotFound, OffsetError, StorageError, WouldBlock
from engine.log.results import Fetched
from engine.types import INT64_MAX, Buffer, FetchIsolation

LOOK_BYTES: Final = 4096
"""Bytes that are read to find the oldest record of a partition; at least one whole batch is."""

MAX_LOOKS_OF_GROUP: Final = 64
"""Partitions of each listed group whose oldest unread record is looked at."""

MAX_TOPICS_NAMED: Final = 10

LISTED_TOGETHER: Final = 500
"""Offsets that are compared with their logs per turn of the loop."""

LOOKED_AT_TOGETHER: Final = 16
"""Partitions that are looked at per turn of the loop: each takes some 50 µs of it."""


class _Lag(NamedTuple):
    """One entry of a group's lag; see `PartitionLag`."""

    topic: str
    partition: int
    offset: int
    log_start_offset: int | None = None
    end_offset: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    missed: int | None = None


async def get_group_lag(exchange: Exchange, group: str, isolation: str) -> Answer:
    """Return a group's lag in every partition with a stored offset.

    Partitions that the caller may not read are left out.
    """
    level = FetchIsolation(isolation)
    lags: list[_Lag] = []
    for count, (key, value) in enumerate(await readable_cursors(exchange, group), start=1):
        lags.append(await _lag(exchange, key, value.offset, level))
        if count % LOOKED_AT_TOGETHER == 0:
            await asyncio.sleep(0)
    body = {
        "group": group,
        "isolation": isolation,
        "partitions": [lag._asdict() for lag in lags],
        "total_lag": sum(lag.lag or 0 for lag in lags),
        "max_lag_ms": max((lag.lag_ms for lag in lags if lag.lag_ms is not None), default=None),
    }
    return json_answer(to_json(body))


async def list_group_lags(
    exchange: Exchange, *, topic: str | None, search: str, isolation: str, limit: int
) -> Answer:
    """Return the groups with the greatest lag in offsets, those that are most behind first.

    Raises TopicNotFound.

    Offsets that cannot be compared with a log count as none: an offset of a partition that is gone,
    or that is not open.
    """
    level = FetchIsolation(isolation)
    if topic is not None:
        exchange.caller.ensure(Action.READ, topic)
        exchange.service.topic(topic)
    groups = exchange.service.groups
    names = await groups.names("", at_most=INT64_MAX, wanted=partial(_is_wanted, exchange, topic))
    ranked: list[tuple[int, str, list[_Lag]]] = []
    count = 0
    for name in names:
        if search and search.casefold() not in name.casefold():
            continue
        lags: list[_Lag] = []
        for key, value in await groups.of_group(name):
            if _is_wanted(exchange, topic, key):
                lags.append(await _lag_in_offsets(exchange, key, value.offset, level))
            count += 1
            if count % LISTED_TOGETHER == 0:
                await asyncio.sleep(0)
        ranked.append((-sum(lag.lag or 0 for lag in lags), name, lags))
    ranked.sort(key=lambda one: one[:2])
    shown = [
        {
            "group": name,
            "partitions": len(lags),
            "topics": sorted({lag.topic for lag in lags})[:MAX_TOPICS_NAMED],
            "total_lag": -behind,
            "max_lag_ms": await _oldest_ms(exchange, lags, level),
            "missed": sum(lag.missed or 0 for lag in lags),
        }
        for behind, name, lags in ranked[:limit]
    ]
    body = {"isolation": isolation, "groups": shown, "groups_count": len(ranked)}
    return json_answer(to_json(body))


def _is_wanted(exchange: Exchange, topic: str | None, key: CursorKey) -> bool:
    return (topic is None or key.topic == topic) and may_read(exchange, key)


async def _oldest_ms(exchange: Exchange, lags: list[_Lag], level: FetchIsolation) -> int | None:
    """Return the greatest age of an unread record, among the partitions that are most behind."""
    ages = []
    behind = sorted((lag for lag in lags if lag.lag), key=lambda lag: lag.lag or 0, reverse=True)
    for count, lag in enumerate(behind[:MAX_LOOKS_OF_GROUP], start=1):
        with contextlib.suppress(NotFound, StorageError):
            partition = exchange.service.partition(lag.topic, lag.partition)
            unread = max(lag.offset, lag.log_start_offset or 0)
            ages.append(await _age_ms(exchange, partition, unread, level))
        if count % LOOKED_AT_TOGETHER == 0:
            await asyncio.sleep(0)
    return max((age for age in ages if age is not None), default=None)


async def _lag(exchange: Exchange, key: CursorKey, offset: int, level: FetchIsolation) -> _Lag:
    found = await _lag_in_offsets(exchange, key, offset, level)
    if not found.lag:
        return found
    partition = exchange.service.partition(key.topic, key.partition)
    unread = max(offset, found.log_start_offset or 0)
    return found._replace(lag_ms=await _age_ms(exchange, partition, unread, level))


async def _lag_in_offsets(
    exchange: Exchange, key: CursorKey, offset: int, level: FetchIsolation
) -> _Lag:
    try:
        partition = exchange.service.partition(key.topic, key.partition)
        await partition.refresh()
    except (NotFound, StorageError):
        return _Lag(key.topic, key.partition, offset)
    marks = partition.watermarks
    start, end = marks.log_start_offset, marks.bound(level).offset
    return _Lag(
        key.topic,
        key.partition,
        offset,
        start,
        end,
        lag=max(0, end - max(offset, start)),
        missed=max(0, start - offset),
    )


async def _age_ms(
    exchange: Exchange, partition: Partition, offset: int, level: FetchIsolation
) -> int | None:
    """Return the age of the first record from an offset on.

    None if the log does not show it near that offset, or it has no time.
    """
    holder = exchange.ticket.holder
    try:
        fetched = partition.read_now(
            offset, max_bytes=LOOK_BYTES, isolation=level
        ) or await partition.read(offset, max_bytes=LOOK_BYTES, isolation=level, holder=holder)
        timestamp = await _first_timestamp(exchange, fetched, offset)
    except (OffsetError, StorageError):
        return None  # the log moved, or is damaged there: the lag in offsets is known all the same
    if timestamp is None or timestamp < 0:
        return None
    return max(0, exchange.service.clock.now_ms() - timestamp)


async def _first_timestamp(exchange: Exchange, fetched: Fetched, offset: int) -> int | None:
    """Return the time of the first record; on a worker if its batch takes long to decode."""
    limit_bytes = exchange.service.settings.max_decompressed_batch_bytes
    view = View(
        start=offset,
        max_records=1,
        limit_bytes=limit_bytes,
        nonblocking=True,
        is_verified=fetched.is_verified,
    )
    try:
        return _first(fetched.data, view)
    except WouldBlock:
        if exchange.budget.is_spent:
            return None
        view = replace(view, nonblocking=False, budget=exchange.budget)
        return await exchange.decode(exchange.read, lambda: _first(fetched.data, view))


def _first(data: Buffer, view: View) -> int | None:
    for _, records in StoredRecords(data, view):
        return records[0].timestamp
    return None
