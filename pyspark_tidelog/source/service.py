"""The requests of the read side: marks, sizes, offsets by time, and batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from pyspark_tidelog.client import Answer, ServiceClient
from pyspark_tidelog.documents import (
    LogStart,
    OffsetsByTime,
    PartitionOffset,
    PartitionSizes,
    TopicsPage,
)
from pyspark_tidelog.errors import DataLossError, OptionError, ServiceError
from pyspark_tidelog.partitions import LogSnapshot, PartitionMarks, TopicPartition
from pyspark_tidelog.source.positions import OffsetSpec, Position
from pyspark_tidelog.source.tasks import OffsetRange
from pyspark_tidelog.source.topics import Topics

_BELOW_LOG_START: Final = 410
_BEYOND_LOG_END: Final = 416
_OFFSET: Final = re.compile("[0-9]{1,19}")
_LOST: Final = frozenset({404, 409, _BELOW_LOG_START, _BEYOND_LOG_END})

LARGEST_BATCH_BYTES: Final = 128 << 20
"""An answer exceeds the size that was asked for by one batch at most, and no batch is larger."""


@dataclass(frozen=True, slots=True)
class Batches:
    """An answer with raw batches; `next_offset` is None if the connection broke in the body."""

    data: bytearray
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class Gone:
    """The offset asked for is below the log's start."""

    log_start_offset: int


def snapshot_of(
    client: ServiceClient,
    topics: Topics,
    *,
    isolation: str = "read_uncommitted",
    allow_missing: bool = False,
) -> LogSnapshot:
    """Ask for the marks of every partition that the query reads.

    Raises OptionError if a topic or partition that was named does not exist, unless
    `allow_missing`.
    """
    topic_ids: dict[str, str] = {}
    marks: dict[TopicPartition, PartitionMarks] = {}
    for topic in _names_of(client, topics):
        found = client.topic_offsets(topic)
        if found is None and not allow_missing and topics.pattern is None:
            raise OptionError(
                f"the service has no topic {topic}: create it first, or correct the option that "
                f"names it"
            )
        for partition in found or []:
            # A log_id is `<topic id>.<leader epoch>`.
            topic_ids[topic] = partition.log_id.rpartition(".")[0]
            log = TopicPartition(topic, partition.partition)
            if topics.has(log):
                is_committed = isolation == "read_committed"
                marks[log] = PartitionMarks(
                    partition.log_start_offset,
                    partition.high_watermark,
                    partition.last_stable_offset if is_committed else None,
                )
    missing = sorted(set(topics.assigned or ()) - marks.keys())
    if missing and not allow_missing:
        raise OptionError(f"the service has no {missing[0].described}: correct the option assign")
    return LogSnapshot(topic_ids, marks)


def resolve(
    client: ServiceClient, position: Position, option: str, snapshot: LogSnapshot
) -> dict[TopicPartition, int]:
    """Return the offset of every partition at a position; raise OptionError if there is none."""
    if isinstance(position, OffsetSpec):
        return position.resolve(option, snapshot)
    moments: dict[tuple[str, int], list[TopicPartition]] = {}
    for log, time_ms in position.wanted(snapshot).items():
        moments.setdefault((log.topic, time_ms), []).append(log)
    found: dict[TopicPartition, int | None] = {}
    for (topic, time_ms), logs in moments.items():
        answers = {
            TopicPartition(topic, partition.partition): partition.offset
            for partition in _offsets_by_time(client, topic, time_ms)
        }
        found |= {log: answers.get(log) for log in logs}
    return position.resolve(snapshot, found)


def size_bytes_of(client: ServiceClient, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Ask how many bytes each partition of the topics takes on disk."""
    return {
        TopicPartition(topic, one.partition): one.size_bytes
        for topic in topics
        for one in client.get(f"/v1/topics/{quote(topic)}/partitions").to(PartitionSizes).partitions
    }


def read_batches(
    client: ServiceClient, wanted: OffsetRange, offset: int, *, max_bytes: int, isolation: str
) -> Batches | Gone:
    """Ask for whole batches from `offset` on; raise DataLossError if the log ends before it."""
    log = wanted.log
    path = (
        f"{log.path}/batches?offset={offset}&end_offset={wanted.end_offset}&max_bytes={max_bytes}"
    )
    if isolation != "read_uncommitted":  # the service's default
        path += f"&isolation={isolation}"
    answer = client.get(
        path, expected=_LOST, may_break=True, max_bytes=max_bytes + LARGEST_BATCH_BYTES
    )
    if answer.status == 200 and not is_of_another_topic(answer, wanted.topic_id):
        return Batches(answer.body, _next_offset(answer) if answer.is_whole else None)
    if answer.status == _BELOW_LOG_START:
        return Gone(answer.to(LogStart).log_start_offset)
    if answer.status == _BEYOND_LOG_END:
        raise DataLossError(
            f"{log.described} ends before offset {offset}, which it had already reached: "
            f"it was truncated, or its topic was deleted and created again"
        )
    raise DataLossError(f"{log.described} was deleted, or deleted and created again")


def is_of_another_topic(answer: Answer, topic_id: str) -> bool:
    """Whether the topic was created again since the task was planned."""
    found, _, _ = answer.headers.get("log-id", "").rpartition(".")
    return bool(topic_id and found) and found != topic_id


def _names_of(client: ServiceClient, topics: Topics) -> Iterator[str]:
    """Yield the topics' names; for a pattern, those that match among all that may be seen."""
    if topics.pattern is None:
        yield from topics.names
        return
    for found in client.pages("/v1/topics", TopicsPage):
        if topics.matches(found.topic):
            yield found.topic


def _offsets_by_time(client: ServiceClient, topic: str, time_ms: int) -> list[PartitionOffset]:
    path = f"/v1/topics/{quote(topic)}/offsets?timestamp={time_ms}"
    answer = client.get(path, expected=frozenset({404}))
    return [] if answer.status == 404 else answer.to(OffsetsByTime).partitions


def _next_offset(answer: Answer) -> int:
    text = answer.headers.get("log-next-offset", "")
    if not _OFFSET.fullmatch(text):
        raise ServiceError("the service answered batches without Log-Next-Offset: is it tidelog?")
    return int(text)
