"""What the brokers say of the cluster: immutable values, published whole."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic

from app.store.kafka.connection import Address
from engine.checkpoint.kafka_files import format_topic_id

ALL_TOPICS: Final = MetadataRequest(
    topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
)

NO_NODE: Final = -1


class Leader(NamedTuple):
    """The broker that leads a partition, and since which epoch."""

    node: int
    """-1 if there is none at present."""
    epoch: int


class TopicLeaders(NamedTuple):
    """A topic with the leader of each partition."""

    topic_id: str
    leaders: tuple[Leader, ...]


class Metadata(NamedTuple):
    """The brokers and topics of one moment."""

    brokers: Mapping[int, Address]
    topics: Mapping[str, TopicLeaders]
    """Internal ones too."""

    @classmethod
    def of(cls, response: MetadataResponse) -> Self:
        return cls(
            {int(one.node_id): Address(one.host, int(one.port)) for one in response.brokers},
            {
                str(one.name): _topic(one)
                for one in response.topics
                if one.error_code is ErrorCode.none and one.name and one.topic_id
            },
        )


EMPTY: Final = Metadata({}, {})


def uuid_of(topic_id: str) -> uuid.UUID:
    """Return a topic id as the protocol has it."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))


def _topic(topic: MetadataResponseTopic) -> TopicLeaders:
    assert topic.topic_id is not None, "only topics with an id are taken"
    by_number = {int(one.partition_index): one for one in topic.partitions}
    leaders = []
    for number in range(max(by_number, default=-1) + 1):
        one = by_number.get(number)
        known = one is not None and one.error_code is not ErrorCode.leader_not_available
        leaders.append(
            Leader(int(one.leader_id), int(one.leader_epoch))
            if one is not None and known
            else Leader(NO_NODE, -1)
        )
    return TopicLeaders(format_topic_id(topic.topic_id.bytes), tuple(leaders))
