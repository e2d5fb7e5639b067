"""Topics: create or verify, describe, configure, delete, list."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from app.codecs.conditions import ensure_conditions, is_known
from app.codecs.paging import MAX_PAGE_ENTRIES, decode_token, encode_token
from app.codecs.receipts import log_answer, shown_archive, shown_marks, to_json
from app.errors import CommitTimedOut, ValueSchemaNotFound
from app.http.answers import NO_STORE, Answer, json_answer
from app.operations.exchange import Exchange
from app.operations.read.offsets import refresh_all
from app.operations.service import Service
from app.store.port import Document, Partition
from engine.errors import StorageError
from engine.manager.topics import Topic
from engine.state.watermarks import Watermarks
from schemas.topics import PutTopic, UpdateTopic
from schemas.value_schemas import PutValueSchema

LISTED_TOGETHER: Final = 50
"""Topics that are described per turn of the loop: each takes some 50 µs of it."""


async def put_topic(exchange: Exchange, name: str, wanted: PutTopic) -> Answer:
    """Create the topic, or verify its settings: 201 or 200."""
    service = exchange.service
    async with service.changing_topics:
        known = service.topics.all().get(name)
        etag = None if known is None else _etag_of(_body_of(service, known))
        ensure_conditions(exchange.head, etag, topic=name)
        if known is None:
            # What a crash has left after an earlier deletion:
            await service.groups.drop_topic(name)
            await service.forget_documents(name)
            service.topic_makers.ensure_share(exchange.maker, len(service.topics.all()))
        overrides = dict(wanted.config)
        topic, created = await service.topics.create(name, wanted.partitions, overrides)
        if created:
            service.topic_makers.add(exchange.maker, name)
    location = (b"location", service.url_of(name).encode())
    return _topic_answer(service, topic, location, status=201 if created else 200)


async def get_topic(exchange: Exchange, name: str) -> Answer:
    """Describe a topic with its effective configuration."""
    answer = _topic_answer(exchange.service, exchange.service.topic(name))
    etag = dict(answer.headers)[b"etag"]
    if is_known(exchange.head, etag.decode()):
        return Answer(304, [NO_STORE, (b"etag", etag)], b"")
    return answer


async def update_topic(exchange: Exchange, name: str, patch: UpdateTopic) -> Answer:
    """Apply a merge patch to the configuration, and add partitions."""
    service = exchange.service
    async with service.changing_topics:
        _ensure_conditions(exchange, name)
        topic = await service.topics.update(name, dict(patch.config), patch.partitions)
    if patch.partitions is not None:
        for partition in service.partitions(name):
            service.tail.wake(partition.identity)  # a tail of the topic ends, to follow them too
    return _topic_answer(service, topic)


async def delete_topic(exchange: Exchange, name: str) -> Answer:
    """Delete the topic at once; its files are removed later."""
    service = exchange.service
    async with service.changing_topics:
        _ensure_conditions(exchange, name)
        await service.topics.delete(name)
        with contextlib.suppress(StorageError):  # it belongs to the topic's id, which is gone
            await service.forget_documents(name)
    service.forget(name)
    service.topic_makers.remove(name)
    with contextlib.suppress(
        StorageError, CommitTimedOut
    ):  # creating the topic again deletes them first
        await service.groups.drop_topic(name)
    return Answer(204, [], b"")


async def list_topics(
    exchange: Exchange, *, prefix: str, page_size: int, page_token: str | None
) -> Answer:
    """Return one page of the topics that the caller may see, by name.

    Internal topics are left out.
    """
    service, caller = exchange.service, exchange.caller
    after = "" if page_token is None else decode_token(page_token)
    names = sorted(
        name
        for name, topic in service.topics.all().items()
        if name.startswith(prefix)
        and name > after
        and not topic.is_internal
        and caller.may_see(name)
    )
    page = names[: min(page_size, MAX_PAGE_ENTRIES)]
    topics = service.topics.all()
    offline: defaultdict[str, list[int]] = defaultdict(list)
    for name, number in service.topics.offline():
        offline[name].append(number)
    shown = []
    listed = [topics[name] for name in page]
    figures = await service.topics.figures(listed)
    for count, (topic, figure) in enumerate(zip(listed, figures, strict=True), start=1):
        shown.append(
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": topic.partitions,
                "overrides": topic.overrides,
                "etag": _etag_of(_body_of(service, topic)),
                "offline_partitions": offline[topic.name],
                "has_ingest_profile": service.profiles.stored(topic.name) is not None,
                "has_value_schema": service.value_schemas.of(topic.name) is not None,
                **figure._asdict(),
            }
        )
        if count % LISTED_TOGETHER == 0:
            await asyncio.sleep(0)
    more = len(names) > len(page)
    token = encode_token(page[-1]) if more else None
    return json_answer(to_json({"topics": shown, "next_page_token": token}))


async def list_partitions(service: Service, name: str) -> Answer:
    """Describe all partitions of a topic that can be read, and name the others."""
    partitions = service.open_partitions(name)
    await refresh_all(partitions)
    body = {
        "topic": name,
        "partitions": [await describe_partition(one, one.watermarks) for one in partitions],
        "offline_partitions": [
            one.partition for one in service.topics.offline() if one.topic == name
        ],
    }
    return json_answer(to_json(body))


async def get_partition(partition: Partition) -> Answer:
    """Describe one partition."""
    await partition.refresh()
    marks = partition.watermarks
    described = await describe_partition(partition, marks)
    return log_answer(partition, described, marks=marks)


async def describe_partition(partition: Partition, marks: Watermarks) -> Mapping[str, object]:
    """Return offsets, bytes, segments, epoch and producers of one partition."""
    producers = await partition.producers()
    size = await partition.size()
    return {
        **shown_marks(marks),
        "topic": partition.topic,
        "partition": partition.number,
        "leader_epoch": marks.leader_epoch,
        "recovery_point": partition.recovery_point,
        **shown_archive(partition.archive),
        "size_bytes": size.size_bytes,
        "segments": size.segments_count,
        "active_producers": len(producers),
        "log_id": partition.log_id_at(marks.leader_epoch),
    }


def _ensure_conditions(exchange: Exchange, name: str) -> None:
    """Raise TopicNotFound, and PreconditionFailed unless the request's conditions hold."""
    service = exchange.service
    etag = _etag_of(_body_of(service, service.topics.topic(name)))
    ensure_conditions(exchange.head, etag, topic=name)


def _topic_answer(
    service: Service, topic: Topic, *headers: tuple[bytes, bytes], status: int = 200
) -> Answer:
    body = _body_of(service, topic)
    return json_answer(body, status=status, headers=[(b"etag", _etag_of(body).encode()), *headers])


def _etag_of(body: bytes) -> str:
    return f'"{hashlib.blake2s(body, digest_size=12).hexdigest()}"'


def _body_of(service: Service, topic: Topic) -> bytes:
    """Return the topic's complete description: its ETag is computed from this."""
    values = service.topics.effective(topic)
    return to_json(
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": topic.partitions,
            "adopted": topic.adopted,
            "config": {
                name: {"value": entry.value, "source": entry.source}
                for name, entry in values.items()
            },
        }
    )


def get_value_schema(exchange: Exchange, topic: str) -> Answer:
    """Return the schema of a topic's values."""
    exchange.service.topic(topic)
    return _schema_answer(_value_schema(exchange, topic))


async def put_value_schema(exchange: Exchange, topic: str, wanted: PutValueSchema) -> Answer:
    """Replace the schema of a topic's values: 201 for its first, otherwise 200; durable."""
    service = exchange.service
    async with service.changing_topics:
        topic_id = service.topic(topic).topic_id
        is_first = await service.value_schemas.put(topic, topic_id, wanted)
    return _schema_answer(_value_schema(exchange, topic), status=201 if is_first else 200)


async def delete_value_schema(exchange: Exchange, topic: str) -> Answer:
    """Remove the schema of a topic's values, durably."""
    service = exchange.service
    async with service.changing_topics:
        service.topic(topic)
        _value_schema(exchange, topic)
        await service.value_schemas.delete(topic)
    return Answer(204, [], b"")


def _value_schema(exchange: Exchange, topic: str) -> Document:
    document = exchange.service.value_schemas.of(topic)
    if document is None:
        raise ValueSchemaNotFound(
            f"the topic {topic} has no value schema; putValueSchema sets one", topic=topic
        )
    return document


def _schema_answer(document: Document, status: int = 200) -> Answer:
    return json_answer(to_json(document["schema"]), status=status)
