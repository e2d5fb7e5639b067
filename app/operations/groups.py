"""Group offsets: stored positions of readers, on disk when they are answered."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from app.codecs.calls import PARTITION
from app.codecs.conditions import CONDITIONS, ensure_conditions, is_known
from app.codecs.paging import MAX_PAGE_ENTRIES, decode_token, encode_token, malformed_token
from app.codecs.receipts import shown_marks, to_json
from app.errors import GroupNotFound, NotSupportedByBackend
from app.http.answers import NO_STORE, Answer, Headers, json_answer
from app.operations.exchange import Exchange
from app.operations.read.fetch import numbered
from app.operations.service import Service
from app.security.rules import Action
from app.store.port import Cursor, CursorKey, CursorValue
from engine.errors import InvalidRequestValue, OffsetBeyondLogEnd, TooLarge
from engine.state.watermarks import Watermarks
from engine.types import NO_LEADER_EPOCH, TopicPartition
from schemas.groups import LONGEST_GROUP_NAME, PutGroupOffset

_SLASH: Final = "%2F"
"""An encoded slash as operations see it; topics cannot contain it, groups can."""


def group_of(text: str) -> str:
    """Return the name of a group from its path parameter."""
    return text.replace(_SLASH, "/")


async def put_group_offset(
    exchange: Exchange, key: CursorKey, wanted: PutGroupOffset, fence: int | None = None
) -> Answer:
    """Store an offset: 201 for the first, otherwise 200; on disk in either case.

    With the fence of a lease, raises LeaseLost once the partition was given to another worker.
    """
    service = exchange.service
    _ensure_storable(service, key, wanted)
    _ensure_can_depend(service, exchange.head)
    await service.partition(key.topic, key.partition).refresh()
    epoch = NO_LEADER_EPOCH if wanted.leader_epoch is None else wanted.leader_epoch
    if fence is not None:
        await service.leases.of_group(key.group)

    def decide(before: Cursor | None) -> CursorValue:
        partition = service.partition(key.topic, key.partition)
        offset = numbered(partition, wanted.offset)
        _ensure_not_beyond(partition.watermarks, offset)
        if fence is not None:
            place = TopicPartition(key.topic, key.partition)
            service.leases.ensure_held(key.group, place, fence)
        ensure_conditions(exchange.head, before and before.etag, group=key.group)
        return CursorValue(offset, epoch, wanted.metadata, service.clock.now_ms())

    cursor, is_first = await service.groups.put(key, decide, exchange.maker)
    return json_answer(
        to_json(_shown(key, cursor.value)),
        status=201 if is_first else 200,
        headers=_tag_headers(cursor),
    )


async def get_group_offset(exchange: Exchange, key: CursorKey) -> Answer:
    """Return a stored offset."""
    cursor = await exchange.service.groups.get(key)
    if cursor.etag is not None and is_known(exchange.head, cursor.etag):
        return Answer(304, [NO_STORE, *_tag_headers(cursor)], b"")
    return json_answer(to_json(_shown(key, cursor.value)), headers=_tag_headers(cursor))


async def delete_group_offset(exchange: Exchange, key: CursorKey) -> Answer:
    """Delete an offset; the deletion is on disk when this returns."""
    _ensure_can_depend(exchange.service, exchange.head)

    def judge(before: Cursor) -> None:
        ensure_conditions(exchange.head, before.etag, group=key.group)

    await exchange.service.groups.delete(key, judge)
    return Answer(204, [], b"")


async def list_groups(exchange: Exchange, *, page_size: int, page_token: str | None) -> Answer:
    """Return one page of the groups with an offset that the caller may read, by name."""
    after = "" if page_token is None else decode_token(page_token)
    size = min(page_size, MAX_PAGE_ENTRIES)
    page = await exchange.service.groups.names(
        after, at_most=size + 1, wanted=partial(may_read, exchange)
    )
    token = encode_token(page[size - 1]) if len(page) > size else None
    return json_answer(to_json({"groups": page[:size], "next_page_token": token}))


async def list_group_offsets(
    exchange: Exchange, group: str, *, page_size: int, page_token: str | None
) -> Answer:
    """Return one page of a group's offsets that the caller may read, by topic and partition."""
    after = None if page_token is None else _key_of(group, decode_token(page_token))
    readable = await readable_cursors(exchange, group)
    cursors = [one for one in readable if after is None or one[0] > after]
    page = cursors[: min(page_size, MAX_PAGE_ENTRIES)]
    token = None
    if len(cursors) > len(page):
        last = page[-1][0]
        token = encode_token(f"{last.topic}/{last.partition}")
    offsets = [_shown(key, value) for key, value in page]
    return json_answer(to_json({"group": group, "offsets": offsets, "next_page_token": token}))


async def readable_cursors(exchange: Exchange, group: str) -> list[tuple[CursorKey, CursorValue]]:
    """Return the offsets of a group in topics that the caller may read.

    Raises GroupNotFound if there is none: a group that the caller may not see does not exist for
    it.
    """
    cursors = await exchange.service.groups.of_group(group)
    readable = [one for one in cursors if may_read(exchange, one[0])]
    if not readable:
        raise GroupNotFound(f"group {group!r} has stored no offset", group=group)
    return readable


def may_read(exchange: Exchange, key: CursorKey) -> bool:
    """Whether the caller may read the topic of an offset."""
    return exchange.caller.may(Action.READ, key.topic)


def _ensure_storable(service: Service, key: CursorKey, wanted: PutGroupOffset) -> None:
    """Raise unless names and metadata are within their limits."""
    ensure_shown_name("group", key.group, LONGEST_GROUP_NAME)
    limit_bytes = service.settings.max_group_metadata_bytes
    size = len(wanted.metadata.encode())
    if size > limit_bytes:
        raise TooLarge(
            f"metadata of {size} bytes is larger than max_group_metadata_bytes ({limit_bytes})",
            limit="max_group_metadata_bytes",
            limit_bytes=limit_bytes,
            actual_bytes=size,
        )


def ensure_shown_name(what: str, name: str, longest_bytes: int) -> None:
    """Raise InvalidRequestValue unless a name can be shown, and stand in a path."""
    # Invalid UTF-8 in a path becomes U+FFFD, so different names would become one.
    # Clients take `.` and `..` in a path for folders and leave them out.
    is_shown = name.isprintable() and "\ufffd" not in name and name not in {"", ".", ".."}
    if not is_shown or len(name.encode(errors="replace")) > longest_bytes:
        raise InvalidRequestValue(
            f"a {what}'s name has 1 to {longest_bytes} bytes of printable characters, and is not "
            ". or ..",
            **{what: name},
        )


def _ensure_not_beyond(marks: Watermarks, offset: int) -> None:
    if offset > marks.log_end_offset:
        raise OffsetBeyondLogEnd(
            f"offset {offset} is beyond the log end {marks.log_end_offset}",
            offset=offset,
            **shown_marks(marks),
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


def _tag_headers(cursor: Cursor) -> Headers:
    return [] if cursor.etag is None else [(b"etag", cursor.etag.encode())]


def _ensure_can_depend(service: Service, head: Mapping[bytes, bytes]) -> None:
    """Raise NotSupportedByBackend for a condition that the store cannot keep."""
    if service.groups.has_conditions:
        return
    for name in CONDITIONS.intersection(head):
        raise NotSupportedByBackend(
            f"{name.decode()}: offsets in a Kafka cluster cannot be changed on a condition",
            header=name.decode(),
        )
