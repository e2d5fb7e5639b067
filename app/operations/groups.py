"""Group offsets: stored positions of readers, on disk when they are answered."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from app.codecs.calls import PARTITION
from app.codecs.conditions import ensure_conditions, is_known
from app.codecs.paging import decode_token, encode_token, malformed_token
from app.codecs.receipts import shown_marks, to_json
from app.http.answers import NO_STORE, Answer, Headers, json_answer
from app.http.problems import CursorNotFound
from app.operations.exchange import Exchange
from app.operations.read.fetch import numbered
from app.operations.service import Service
from app.security.scopes import Action
from app.store.local.group_loading import Stored
from app.store.local.group_offsets import no_such_group
from app.store.local.group_records import CursorKey, CursorValue
from engine.errors import InvalidRequestValue, NotFound, OffsetBeyondLogEnd, TooLarge
from engine.state.watermarks import Watermarks
from engine.types import NO_LEADER_EPOCH, FetchIsolation
from schemas.groups import LONGEST_GROUP_NAME, PutGroupOffset

_SLASH: Final = "%2F"
"""An encoded slash as operations see it; topics cannot contain it, groups can."""

LOOKED_AT_TOGETHER: Final = 100
"""Groups that are processed per turn of the loop; with the maximum of both, a group has ten
offsets."""


def group_of(text: str) -> str:
    """Return the name of a group from its path parameter."""
    return text.replace(_SLASH, "/")


async def put_group_offset(exchange: Exchange, key: CursorKey, wanted: PutGroupOffset) -> Answer:
    """Store an offset: 201 for the first, otherwise 200; on disk in either case."""
    service = exchange.service
    _ensure_storable(service, key, wanted)
    await _make_topic(service)
    epoch = NO_LEADER_EPOCH if wanted.leader_epoch is None else wanted.leader_epoch
    async with service.groups.changing:
        partition = service.partition(key.topic, key.partition)
        offset = numbered(partition, wanted.offset)
        _ensure_not_beyond(partition.watermarks, offset)
        before = service.groups.newest(key)
        ensure_conditions(exchange.head, _etag_of(before), group=key.group)
        value = CursorValue(offset, epoch, wanted.metadata, service.clock.now_ms())
        stored = await service.groups.append(key, value)
    await service.groups.committed(stored)
    status = 201 if before is None else 200
    return json_answer(to_json(_shown(key, value)), status=status, headers=_tag_headers(stored))


def get_group_offset(exchange: Exchange, key: CursorKey) -> Answer:
    """Return a stored offset."""
    stored = exchange.service.groups.cursor(key)
    assert stored.value is not None, "what was deleted is not found"
    if is_known(exchange.head, stored.etag):
        return Answer(304, [NO_STORE, *_tag_headers(stored)], b"")
    return json_answer(to_json(_shown(key, stored.value)), headers=_tag_headers(stored))


async def delete_group_offset(exchange: Exchange, key: CursorKey) -> Answer:
    """Delete an offset; the deletion is on disk when this returns."""
    service = exchange.service
    groups = service.groups
    async with groups.changing:
        before = groups.newest(key)
        if before is None:
            raise CursorNotFound(
                f"group {key.group!r} has stored no offset for {key.topic}-{key.partition}",
                group=key.group,
            )
        ensure_conditions(exchange.head, before.etag, group=key.group)
        stored = await groups.append(key, None)
    await groups.committed(stored)
    groups.forget([key])
    return Answer(204, [], b"")


async def list_groups(exchange: Exchange, *, page_size: int, page_token: str | None) -> Answer:
    """Return one page of the groups with an offset that the caller may read, by name."""
    groups, settings = exchange.service.groups, exchange.service.settings
    after = "" if page_token is None else decode_token(page_token)
    size = min(page_size, settings.max_page_size)
    page: list[str] = []
    for count, name in enumerate(groups.names(after), start=1):
        if any(_may_read(exchange, key) for key in groups.keys(name)):
            page.append(name)
        if len(page) > size:
            break
        if count % LOOKED_AT_TOGETHER == 0:
            await asyncio.sleep(0)
    token = encode_token(page[size - 1]) if len(page) > size else None
    return json_answer(to_json({"groups": page[:size], "next_page_token": token}))


def list_group_offsets(
    exchange: Exchange, group: str, *, page_size: int, page_token: str | None
) -> Answer:
    """Return one page of a group's offsets that the caller may read, by topic and partition."""
    service = exchange.service
    after = None if page_token is None else _key_of(group, decode_token(page_token))
    readable = _readable(exchange, group)
    cursors = [one for one in readable if after is None or one[0] > after]
    page = cursors[: min(page_size, service.settings.max_page_size)]
    token = None
    if len(cursors) > len(page):
        last = page[-1][0]
        token = encode_token(f"{last.topic}/{last.partition}")
    offsets = [_shown(key, value) for key, value in page]
    return json_answer(to_json({"group": group, "offsets": offsets, "next_page_token": token}))


def get_group_lag(exchange: Exchange, group: str, isolation: str) -> Answer:
    """Return a group's lag in every partition with a stored offset.

    Partitions that the caller may not read are left out.
    """
    service, level = exchange.service, FetchIsolation(isolation)
    readable = _readable(exchange, group)
    lags = [_lag(service, key, value.offset, level) for key, value in readable]
    body = {
        "group": group,
        "isolation": isolation,
        "partitions": [lag._asdict() for lag in lags],
        "total_lag": sum(lag.lag or 0 for lag in lags),
    }
    return json_answer(to_json(body))


def _readable(exchange: Exchange, group: str) -> list[tuple[CursorKey, CursorValue]]:
    """Return the offsets of a group in topics that the caller may read.

    Raises GroupNotFound if there is none: a group that the caller may not see does not exist for
    it.
    """
    cursors = exchange.service.groups.cursors(group)
    readable = [one for one in cursors if _may_read(exchange, one[0])]
    if not readable:
        raise no_such_group(group)
    return readable


def _may_read(exchange: Exchange, key: CursorKey) -> bool:
    return exchange.caller.may(Action.READ, key.topic)


async def drop_topic_cursors(service: Service, topic: str) -> None:
    """Delete every group's offsets in a deleted topic; raises what an append raises.

    A crash may leave some of them; creating a topic with that name deletes them first.
    """
    groups, latest = service.groups, {}
    keys: list[CursorKey] = []
    for count, found in enumerate(groups.of_topic(topic), start=1):
        keys += found
        if count % LOOKED_AT_TOGETHER == 0:
            await asyncio.sleep(0)
    for key in keys:
        async with groups.changing:
            stored = await groups.append(key, None)
        latest[stored.log_partition] = stored
        await asyncio.sleep(0)  # there may be very many
    for stored in latest.values():
        await groups.committed(stored)
    groups.forget(keys)


async def _make_topic(service: Service) -> None:
    if not service.groups.is_made:
        service.groups.use(await service.administer(service.groups.make))


def _ensure_storable(service: Service, key: CursorKey, wanted: PutGroupOffset) -> None:
    """Raise unless names and metadata are within their limits."""
    group = key.group
    # Invalid UTF-8 in a path becomes U+FFFD, so different names would become one.
    is_shown = group.isprintable() and "\ufffd" not in group
    if not is_shown or len(group.encode()) > LONGEST_GROUP_NAME:
        raise InvalidRequestValue(
            f"a group's name has 1 to {LONGEST_GROUP_NAME} bytes of printable characters",
            group=group,
        )
    limit_bytes = service.settings.max_group_metadata_bytes
    size = len(wanted.metadata.encode())
    if size > limit_bytes:
        raise TooLarge(
            f"metadata of {size} bytes is larger than max_group_metadata_bytes ({limit_bytes})",
            limit="max_group_metadata_bytes",
            limit_bytes=limit_bytes,
            actual_bytes=size,
        )


def _ensure_not_beyond(marks: Watermarks, offset: int) -> None:
    if offset > marks.log_end_offset:
        raise OffsetBeyondLogEnd(
            f"offset {offset} is beyond the log end {marks.log_end_offset}",
            offset=offset,
            **shown_marks(marks),
        )


class _Lag(NamedTuple):
    """One entry of a group's lag; see `PartitionLag`."""

    topic: str
    partition: int
    offset: int
    log_start_offset: int | None = None
    end_offset: int | None = None
    lag: int | None = None
    missed: int | None = None


def _lag(service: Service, key: CursorKey, offset: int, isolation: FetchIsolation) -> _Lag:
    try:
        marks = service.partition(key.topic, key.partition).watermarks
    except NotFound:
        return _Lag(key.topic, key.partition, offset)
    start, end = marks.log_start_offset, marks.bound(isolation).offset
    return _Lag(
        key.topic,
        key.partition,
        offset,
        start,
        end,
        lag=max(0, end - max(offset, start)),
        missed=max(0, start - offset),
    )


def _shown(key: CursorKey, value: CursorValue) -> dict[str, object]:
    return {
        "group": key.group,
        "topic": key.topic,
        "partition": key.partition,
        "offset": value.offset,
        "leader_epoch": None if value.leader_epoch < 0 else value.leader_epoch,
        "metadata": value.metadata,
        "commit_timestamp": value.commit_timestamp,
    }


def _key_of(group: str, text: str) -> CursorKey:
    topic, _, partition = text.rpartition("/")
    if PARTITION.fullmatch(partition) is None:
        raise malformed_token()
    return CursorKey(group, topic, int(partition))


def _etag_of(stored: Stored | None) -> str | None:
    return None if stored is None else stored.etag


def _tag_headers(stored: Stored) -> Headers:
    return [(b"etag", stored.etag.encode())]
