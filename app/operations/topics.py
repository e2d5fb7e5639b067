"""Topics: create or verify, describe, configure, delete, list."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping

from app.admission import ensure_files
from app.answers import Answer, json_answer
from app.commits import CommitTimedOut
from app.operations.exchange import Exchange
from app.operations.groups import drop_topic_cursors
from app.operations.service import Service
from app.system_limits import ensure_maps
from app.translate.paging import decode_token, encode_token
from app.translate.receipts import Place, log_answer, to_json
from engine.errors import PreconditionFailed, StorageError, TopicConflict
from engine.manager.topics import Topic
from engine.state.watermarks import Watermarks
from engine.topic_keys import effective
from schemas.topics import PutTopic, UpdateTopic


async def put_topic(service: Service, name: str, wanted: PutTopic, *, create_only: bool) -> Answer:
    """Create the topic, or verify that it is as wanted: 201 or 200."""
    manager = service.manager
    if name not in manager.topics():
        await drop_topic_cursors(service, name)  # left by a crash behind its namesake's deletion

    def create() -> tuple[Topic, bool]:
        if name not in manager.topics():
            _ensure_resources(service, wanted.partitions)
        return manager.create_topic(
            name, partitions=wanted.partitions, overrides=dict(wanted.config)
        )

    exists = PreconditionFailed(f"topic {name} exists", topic=name)
    try:
        topic, created = await service.administer(create)
    except TopicConflict as conflict:
        raise (exists if create_only else conflict) from None
    if create_only and not created:
        raise exists
    location = (b"location", b"/v1/topics/" + name.encode())
    return json_answer(
        to_json(_described(service, topic)), status=201 if created else 200, headers=[location]
    )


async def get_topic(service: Service, name: str) -> Answer:
    """Describe a topic with the configuration in force."""
    return json_answer(to_json(_described(service, service.topic(name))))


async def update_topic(service: Service, name: str, patch: UpdateTopic) -> Answer:
    """Apply a merge patch to the configuration, and add partitions."""
    manager = service.manager

    def update() -> Topic:
        if patch.partitions is not None:
            _ensure_resources(service, patch.partitions - service.topic(name).partitions)
        return manager.update_topic(name, changes=dict(patch.config), partitions=patch.partitions)

    topic = await service.administer(update)
    return json_answer(to_json(_described(service, topic)))


async def delete_topic(service: Service, name: str) -> Answer:
    """Take the topic away at once; its files go later."""
    manager = service.manager
    await service.administer(lambda: manager.delete_topic(name))
    service.forget(name)
    with contextlib.suppress(StorageError, CommitTimedOut):  # making the topic anew asks again
        await drop_topic_cursors(service, name)
    return Answer(204, [], b"")


def _ensure_resources(service: Service, partitions: int) -> None:
    """Refuse partitions that the system's limits leave no room for, unless the engine does."""
    if partitions <= service.settings.max_partitions_per_topic:
        existing = len(service.manager.logs())
        ensure_files(partitions, existing)
        ensure_maps(partitions, existing)


def list_topics(
    exchange: Exchange, *, prefix: str, page_size: int, page_token: str | None
) -> Answer:
    """Return one page of the topics that the caller may see, in the order of their names.

    A broker's own are left out.
    """
    service, caller = exchange.service, exchange.caller
    after = "" if page_token is None else decode_token(page_token)
    names = sorted(
        name
        for name, topic in service.manager.topics().items()
        if name.startswith(prefix)
        and name > after
        and not topic.is_internal
        and caller.may_see(name)
    )
    page = names[: min(page_size, service.settings.max_page_size)]
    topics = service.manager.topics()
    offline: defaultdict[str, list[int]] = defaultdict(list)
    for log in service.manager.offline_logs:
        offline[log.topic_partition.topic].append(log.topic_partition.partition)
    shown = [
        {
            "topic": name,
            "topic_id": topics[name].topic_id,
            "partitions": topics[name].partitions,
            "offline_partitions": offline[name],
        }
        for name in page
        if name in topics
    ]
    more = len(names) > len(page)
    token = encode_token(page[-1]) if more else None
    return json_answer(to_json({"topics": shown, "next_page_token": token}))


async def list_partitions(service: Service, name: str) -> Answer:
    """Describe all partitions of a topic."""
    places = service.places(name)
    partitions = await service.administer(
        lambda: [describe_partition(place, place.log.watermarks) for place in places]
    )
    return json_answer(to_json({"topic": name, "partitions": partitions}))


async def get_partition(service: Service, place: Place) -> Answer:
    """Describe one partition."""
    marks = place.log.watermarks
    described = await service.administer(lambda: describe_partition(place, marks))
    return log_answer(place, described, marks=marks)


def describe_partition(place: Place, marks: Watermarks) -> Mapping[str, object]:
    """Return offsets, bytes, segments, epoch and producers of one partition."""
    log = place.log
    return {
        "log_start_offset": marks.log_start_offset,
        "high_watermark": marks.high_watermark,
        "last_stable_offset": marks.last_stable_offset,
        "log_end_offset": marks.log_end_offset,
        "topic": place.topic,
        "partition": place.partition,
        "leader_epoch": log.leader_epoch,
        "recovery_point": log.recovery_point,
        "size_bytes": log.size_bytes,
        "segments": log.segments_count,
        "active_producers": len(log.producers()),
        "log_id": log.log_id,
    }


def _described(service: Service, topic: Topic) -> Mapping[str, object]:
    overrides = {**service.settings.default_topic_config, **topic.overrides}
    values = effective(overrides, adopted=topic.adopted)
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "adopted": topic.adopted,
        "config": {
            name: {"value": entry.value, "source": entry.source} for name, entry in values.items()
        },
    }
