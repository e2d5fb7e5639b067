"""The JSON documents of the service that Spark's side reads, as types: what else comes is refused.

The service may be impersonated, or be another program: a name that reaches a path, a number that
sizes a loop and a page that is followed have types with limits. Fields that are not named here are
passed over.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

MAX_PARTITIONS: Final = 1 << 20
"""Of one topic. The service has at most 65,536, a Kafka cluster may have more."""

TOPIC_NAME: Final = r"^(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}\Z"
"""Kafka's rule; such a name also cannot change the path of a URL or a file."""

Offset = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, lt=MAX_PARTITIONS)]
TopicName = Annotated[str, msgspec.Meta(pattern=TOPIC_NAME)]


class Topic(msgspec.Struct):
    """A topic in a page of topics."""

    topic: TopicName


class TopicsPage(msgspec.Struct):
    """A page of topics."""

    next_page_token: str | None
    items: list[Topic] = msgspec.field(name="topics")


class Marks(msgspec.Struct):
    """How far the log of a partition reaches."""

    log_start_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    log_end_offset: Offset
    log_id: Annotated[str, msgspec.Meta(max_length=100)]
    """`<topic id>.<leader epoch>`."""


class PartitionOffsets(Marks):
    """The marks of a partition, with its number."""

    partition: PartitionNumber


class TopicOffsets(msgspec.Struct):
    """The marks of each partition of a topic."""

    partitions: list[PartitionOffsets]


class PartitionOffset(msgspec.Struct):
    """The offset that a look-up by time found in a partition."""

    partition: PartitionNumber
    offset: Offset | None


class OffsetsByTime(msgspec.Struct):
    """What a look-up by time found in each partition of a topic."""

    partitions: list[PartitionOffset]


class OffsetByTime(msgspec.Struct):
    """What a look-up by time found in one partition."""

    offset: Offset | None


class PartitionSize(msgspec.Struct):
    """The bytes of a partition on disk."""

    partition: PartitionNumber
    size_bytes: Offset


class PartitionSizes(msgspec.Struct):
    """The sizes of a topic's partitions."""

    partitions: list[PartitionSize]


class LogStart(msgspec.Struct):
    """Where a log begins, in the refusal of an offset below it."""

    log_start_offset: Offset


class Split(msgspec.Struct):
    """A range of offsets of a partition."""

    partition: PartitionNumber
    start_offset: Offset
    end_offset: Offset


class Splits(msgspec.Struct):
    """The service's plan for a topic."""

    splits: list[Split]


class SegmentFiles(msgspec.Struct):
    """The paths of the files of a segment."""

    log: str
    index: str


class Segment(msgspec.Struct):
    """One segment of a log."""

    base_offset: Offset
    next_offset: Offset
    is_active: bool
    files: SegmentFiles | None


class Segments(msgspec.Struct):
    """The segments of a log."""

    segments: list[Segment]


class NewProducer(msgspec.Struct):
    """A new producer id, and its epoch."""

    producer_id: Offset
    producer_epoch: Annotated[int, msgspec.Meta(ge=0, lt=1 << 15)]


class ProducerState(NewProducer):
    """A producer that a log knows."""

    current_txn_start_offset: Offset | None


class ProducersPage(msgspec.Struct):
    """A page of the producers of a log."""

    next_page_token: str | None
    items: list[ProducerState] = msgspec.field(name="producers")


class Appended(msgspec.Struct):
    """Where a batch was written."""

    base_offset: Offset


class GroupOffset(msgspec.Struct):
    """An offset of a consumer group."""

    offset: Offset
    metadata: str


class LedgerRecord(msgspec.Struct):
    """A record of the ledger; its value is what a writer put there."""

    offset: Offset
    key: Any
    value: Any


class RecordsPage(msgspec.Struct):
    """A page of records of the ledger."""

    records: list[LedgerRecord]
    next_offset: Offset
    high_watermark: Offset


class Problem(msgspec.Struct):
    """A problem document (RFC 9457)."""

    code: str = ""
    title: str = ""
    detail: str = ""
