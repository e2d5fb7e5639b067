"""Topics and partitions as the proxies describe them: of a cluster of one broker, number 0."""

from __future__ import annotations

from typing import Final

from app.api.rest_v2.media import UNKNOWN_TOPIC_OR_PARTITION, answer_of
from app.http.answers import Answer
from app.operations.exchange import Exchange
from app.store.port import Partition
from engine.errors import TopicNotFound

BROKER: Final = 0
"""Who leads every partition and has its only replica."""


def list_brokers(exchange: Exchange) -> Answer:
    """Return the number of the one broker."""
    return answer_of(exchange.head, {"brokers": [BROKER]})


def list_topics(exchange: Exchange) -> Answer:
    """Return the names of the topics that the caller may see, in their order; no internal ones."""
    topics = exchange.service.topics.all().items()
    served = [name for name, topic in topics if not topic.is_internal]
    return answer_of(exchange.head, sorted(filter(exchange.caller.may_see, served)))


def get_topic(exchange: Exchange, name: str) -> Answer:
    """Return a topic with the configuration in force, and its partitions."""
    service = exchange.service
    try:
        topic = service.topic(name)
    except TopicNotFound as error:
        code = UNKNOWN_TOPIC_OR_PARTITION
        raise TopicNotFound(str(error), **error.facts(), proxy_code=code) from None
    configs = service.topics.effective(topic)
    described = {
        "name": name,
        "configs": {key: entry.value for key, entry in configs.items()},
        "partitions": [_described(partition) for partition in service.partitions(name)],
    }
    return answer_of(exchange.head, described)


def list_partitions(exchange: Exchange, topic: str) -> Answer:
    """Return the partitions of a topic."""
    return answer_of(
        exchange.head, [_described(partition) for partition in exchange.service.partitions(topic)]
    )


def get_partition(exchange: Exchange, partition: Partition) -> Answer:
    """Return one partition."""
    return answer_of(exchange.head, _described(partition))


async def get_offsets(exchange: Exchange, partition: Partition) -> Answer:
    """Return where the partition begins, and the end of what readers may see."""
    await partition.refresh()
    marks = partition.watermarks
    offsets = {"beginning_offset": marks.log_start_offset, "end_offset": marks.high_watermark}
    return answer_of(exchange.head, offsets)


def _described(partition: Partition) -> dict[str, object]:
    replica = {"broker": BROKER, "leader": True, "in_sync": True}
    return {"partition": partition.number, "leader": BROKER, "replicas": [replica]}
