"""Subscriptions as resources: list, read, put, delete, test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from app.codecs.calls import ReadCall, parse_offset
from app.codecs.filter import filter_of
from app.codecs.paging import MAX_PAGE_ENTRIES, decode_token, encode_token
from app.codecs.receipts import to_json
from app.errors import MalformedRequest, SubscriptionNotFound, invalid_member
from app.http.answers import Answer, json_answer
from app.operations.exchange import Exchange
from app.operations.groups import ensure_shown_name
from app.operations.read.fetch import start_offset
from app.operations.subscriptions.push import Push, answered
from app.operations.subscriptions.requests import Batch, request_of
from app.operations.subscriptions.subscriptions import Subscription
from app.operations.subscriptions.targets import ensure_target
from app.security.rules import Action
from app.store.port import Cursor, CursorKey, CursorValue
from engine.errors import LogOffline, NotFound, PolicyViolation
from engine.state.watermarks import Watermarks
from schemas.groups import LONGEST_GROUP_NAME
from schemas.subscriptions import PatchSubscription, PutSubscription

_SHOWN_BYTES = 2_000
"""Of a test's response."""


async def put_subscription(exchange: Exchange, name: str, wanted: PutSubscription) -> Answer:
    """Set a subscription: 201 for a new one, otherwise 200; durable in either case."""
    service = exchange.service
    for topic in wanted.topics:
        exchange.caller.ensure(Action.ADMIN, topic)
        exchange.caller.ensure(Action.READ, topic)
        await service.look_for(topic, 0)
        service.topic(topic)
    if wanted.dead_letter_topic is not None:
        exchange.caller.ensure(Action.APPEND, wanted.dead_letter_topic)
        service.topic(wanted.dead_letter_topic)
    if wanted.filter is not None:
        try:
            filter_of(wanted.filter)
        except MalformedRequest as error:
            raise invalid_member("filter", str(error)) from None
    group = wanted.group or f"subscription-{name}"
    ensure_shown_name("group", group, LONGEST_GROUP_NAME)
    await ensure_target(service.subscriptions.hosts, wanted.url)
    async with service.changing_topics:
        before = service.subscriptions.all().get(name)
        if before is not None:
            _ensure_seen(exchange, before)
        limit = service.settings.max_subscriptions
        if before is None and len(service.subscriptions.all()) >= limit:
            raise PolicyViolation(
                f"max_subscriptions ({limit}) is reached",
                limit="max_subscriptions",
                limit_value=limit,
            )
        complete = _with_secrets(wanted.model_copy(update={"group": group}), before)
        await _begin(exchange, complete)
        stored = await service.subscriptions.put(name, complete)
    body = to_json(_shown(exchange, stored))
    return json_answer(body, status=201 if before is None else 200)


async def get_subscription(exchange: Exchange, name: str) -> Answer:
    """Return a subscription, without its secrets, and how it is going."""
    return json_answer(to_json(_shown(exchange, _found(exchange, name))))


async def update_subscription(exchange: Exchange, name: str, wanted: PatchSubscription) -> Answer:
    """Pause a subscription, or start it again where its group is; durable."""
    async with exchange.service.changing_topics:
        one = _found(exchange, name)
        options = one.options.model_copy(update={"paused": wanted.paused})
        stored = await exchange.service.subscriptions.put(name, options)
    return json_answer(to_json(_shown(exchange, stored)))


async def delete_subscription(exchange: Exchange, name: str) -> Answer:
    """Delete a subscription with its secrets, durably; the group's offsets stay."""
    async with exchange.service.changing_topics:
        _found(exchange, name)
        await exchange.service.subscriptions.delete(name)
    return Answer(204, [], b"")


async def list_subscriptions(
    exchange: Exchange, *, page_size: int, page_token: str | None
) -> Answer:
    """Return one page of the subscriptions of topics that the caller may administer, by name."""
    after = "" if page_token is None else decode_token(page_token)
    size = min(page_size, MAX_PAGE_ENTRIES)
    found = [
        one
        for name, one in sorted(exchange.service.subscriptions.all().items())
        if name > after and _may_see(exchange, one)
    ]
    page = found[:size]
    body = {
        "subscriptions": [_shown(exchange, one) for one in page],
        "next_page_token": encode_token(page[-1].name) if len(found) > size else None,
    }
    return json_answer(to_json(body))


async def test_subscription(exchange: Exchange, name: str) -> Answer:
    """Send one request with a record that no log has; nothing is committed."""
    one = _found(exchange, name)
    service = exchange.service
    now_ms = service.clock.now_ms()
    encoding = "base64" if one.options.format == "body" else "json"
    record = {
        "offset": 0,
        "timestamp": now_ms,
        "timestamp_type": "create",
        "key": None,
        "key_encoding": "utf8",
        "value": "eyJ0ZXN0Ijp0cnVlfQ==" if encoding == "base64" else {"test": True},
        "value_encoding": encoding,
        "headers": [],
        "leader_epoch": 0,
    }
    batch = Batch(one.options.topics[0], 0, [msgspec.json.encode(record)], 0, 0, 0)
    request = request_of(name, one.options, batch, now_ms=now_ms, attempt=1)
    headers = {**request.headers, "tidelog-test": "true"}
    began_ms = service.clock.monotonic_ms()
    answer, response = await answered(
        service.subscriptions.sender, one.options, headers, request.body, now_ms=now_ms
    )
    shown = b"" if response is None else response.body[:_SHOWN_BYTES]
    body = {
        "status": answer.status,
        "problem": answer.problem,
        "duration_ms": int(service.clock.monotonic_ms() - began_ms),
        "response": shown.decode(errors="replace"),
    }
    return json_answer(to_json(body))


async def _begin(exchange: Exchange, options: PutSubscription) -> None:
    """Store where to begin, for partitions of which the group has no offset."""
    service = exchange.service
    start = parse_offset(str(options.start))
    for topic in options.topics:
        for partition in service.open_partitions(topic):
            offset = await start_offset(exchange, partition, ReadCall(start))
            offset = min(offset, partition.watermarks.log_end_offset)
            value = CursorValue(offset, commit_timestamp=service.clock.now_ms())

            def decide(before: Cursor | None, value: CursorValue = value) -> CursorValue:
                return value if before is None else before.value

            key = CursorKey(options.group or "", topic, partition.number)
            await service.groups.put(key, decide, exchange.maker)


def _with_secrets(wanted: PutSubscription, before: Subscription | None) -> PutSubscription:
    """Return the subscription with its secrets: those that were sent, or those that it has."""
    signature = wanted.signature
    if signature is None or signature.secrets is not None:
        return wanted
    earlier = None if before is None else before.options.signature
    if earlier is None:
        raise invalid_member("signature.secrets", "send secrets: the subscription has none")
    return wanted.model_copy(update={"signature": earlier})


def _may_see(exchange: Exchange, one: Subscription) -> bool:
    return all(exchange.caller.may(Action.ADMIN, topic) for topic in one.options.topics)


def _ensure_seen(exchange: Exchange, one: Subscription) -> None:
    for topic in one.options.topics:
        exchange.caller.ensure(Action.ADMIN, topic)


def _found(exchange: Exchange, name: str) -> Subscription:
    """Return a subscription; one that the caller may not see does not exist for it."""
    one = exchange.service.subscriptions.all().get(name)
    if one is None or not _may_see(exchange, one):
        raise SubscriptionNotFound(f"there is no subscription {name!r}")
    return one


def _shown(exchange: Exchange, one: Subscription) -> dict[str, object]:
    options = one.options
    signature = options.signature
    return {
        "name": one.name,
        "topics": options.topics,
        "group": options.group,
        "url": options.url,
        "start": str(options.start),
        "format": options.format,
        "batch": options.batch.model_dump(),
        "header_names": sorted(options.headers),
        "signature": None
        if signature is None
        else {"scheme": signature.scheme, "secrets_count": len(signature.secrets or ())},
        "timeout_ms": options.timeout_ms,
        "retry": options.retry.model_dump(),
        "dead_letter_topic": options.dead_letter_topic,
        "filter": options.filter,
        "paused": options.paused,
        "state": one.state,
        "problem": one.problem,
        "partitions": [*_pushed(exchange, one)],
    }


def _pushed(exchange: Exchange, one: Subscription) -> Iterator[dict[str, object]]:
    for place, push in sorted(one.pushes.items()):
        with suppress(NotFound, LogOffline):  # it was deleted, or its disk has failed
            marks = exchange.service.partition(*place).watermarks
            yield _partition(push, marks)


def _partition(push: Push, marks: Watermarks) -> dict[str, object]:
    topic, number = push.place
    last = push.last
    return {
        "topic": topic,
        "partition": number,
        "offset": push.offset,
        "lag": max(0, marks.last_stable_offset - max(push.offset, marks.log_start_offset)),
        "failures": push.failures,
        "next_attempt_at": push.next_attempt_ms,
        "last_answer": None
        if last is None
        else {
            "timestamp": last.timestamp_ms,
            "duration_ms": last.duration_ms,
            "status": last.status,
            "problem": last.problem,
        },
    }
