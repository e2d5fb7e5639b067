"""What the source asks of the service: how far topics reach, and batches.

The HTTP contract in the source's own words; statuses become the errors of this package here and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from pyspark_tidelog.client import Answer, ServiceClient
from pyspark_tidelog.errors import DataLossError, ServiceError
from pyspark_tidelog.positions import LogSnapshot, OffsetSpec, PartitionMarks, TopicPartition
from pyspark_tidelog.source.options import Place
from pyspark_tidelog.source.splits import Split
from pyspark_tidelog.source.topics import Topics

_NOT_FOUND: Final = 404
_REPLACED: Final = 409
_BELOW_LOG_START: Final = 410
_BEYOND_LOG_END: Final = 416
_LOST: Final = frozenset({_NOT_FOUND, _REPLACED, _BELOW_LOG_START, _BEYOND_LOG_END})


@dataclass(frozen=True, slots=True)
class Batches:
    """An answer with raw batches; `next_offset` is None where the body broke off."""

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
    """Ask how far every partition that is read reaches, up to what the isolation lets be read.

    Raises ServiceError where a topic or partition that was named is not there, if that matters.
    """
    topic_ids: dict[str, str] = {}
    marks: dict[TopicPartition, PartitionMarks] = {}
    for topic in _names_of(client, topics):
        found = _offsets_of(client, topic)
        if found is None and not allow_missing and topics.pattern is None:
            raise ServiceError(
                f"the service has no topic {topic}: create it first, or mend the option that names "
                f"it"
            )
        for partition in found or []:
            # The id of a log is `<topic id>.<leader epoch>`.
            topic_ids[topic] = str(partition["log_id"]).rpartition(".")[0]
            log = TopicPartition(topic, int(partition["partition"]))
            if topics.has(log):
                marks[log] = _marks_of(partition, isolation)
    missing = sorted(set(topics.assigned or ()) - marks.keys())
    if missing and not allow_missing:
        raise ServiceError(f"the service has no {missing[0].described}: mend the option assign")
    return LogSnapshot(topic_ids, marks)


def resolve(
    client: ServiceClient, place: Place, option: str, snapshot: LogSnapshot
) -> dict[TopicPartition, int]:
    """Return the offset of every partition at a place; raise OptionError where there is none."""
    if isinstance(place, OffsetSpec):
        return place.resolve(option, snapshot)
    moments: dict[tuple[str, int], list[TopicPartition]] = {}
    for log, time_ms in place.wanted(snapshot).items():
        moments.setdefault((log.topic, time_ms), []).append(log)
    found: dict[TopicPartition, int | None] = {}
    for (topic, time_ms), logs in moments.items():
        answers = {
            TopicPartition(topic, int(partition["partition"])): partition["offset"]
            for partition in _offsets_of(client, topic, f"?timestamp={time_ms}") or []
        }
        found |= {log: answers.get(log) for log in logs}
    return place.resolve(snapshot, found)


def size_bytes_of(client: ServiceClient, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Ask how many bytes each partition of the topics takes on disk."""
    return {
        TopicPartition(topic, int(partition["partition"])): int(partition["size_bytes"])
        for topic in topics
        for partition in client.get(f"/v1/topics/{quote(topic)}/partitions").json()["partitions"]
    }


def read_batches(
    client: ServiceClient, split: Split, offset: int, *, max_bytes: int, isolation: str
) -> Batches | Gone:
    """Ask for whole batches from `offset` on; raises DataLossError where the log ends before."""
    log = split.range.log
    path = (
        f"/v1/topics/{quote(log.topic)}/partitions/{log.partition}/batches"
        f"?offset={offset}&end_offset={split.end_offset}&max_bytes={max_bytes}"
    )
    if isolation != "read_uncommitted":  # which is the service's default
        path += f"&isolation={isolation}"
    answer = client.get(path, expected=_LOST, may_break=True)
    if answer.status == 200 and not _is_of_another_topic(answer, split.topic_id):
        return Batches(answer.body, _next_offset(answer) if answer.is_whole else None)
    if answer.status == _BELOW_LOG_START:
        return Gone(int(answer.json()["log_start_offset"]))
    if answer.status == _BEYOND_LOG_END:
        raise DataLossError(
            f"{log.described} ends before offset {offset}, which it had already reached: "
            f"it was truncated or its topic made again"
        )
    raise DataLossError(f"{log.described} was deleted or made again")


def _names_of(client: ServiceClient, topics: Topics) -> Iterator[str]:
    """Yield the topics by name; with a pattern, those that match among all that may be seen."""
    if topics.pattern is None:
        yield from topics.names
        return
    token: str | None = ""
    while token is not None:
        page = client.get("/v1/topics" + (f"?page_token={quote(token, safe='')}" if token else ""))
        document = page.json()
        yield from (t["topic"] for t in document["topics"] if topics.matches(t["topic"]))
        token = document["next_page_token"]


def _offsets_of(client: ServiceClient, topic: str, query: str = "") -> list[dict[str, Any]] | None:
    path = f"/v1/topics/{quote(topic)}/offsets{query}"
    answer = client.get(path, expected=frozenset({_NOT_FOUND}))
    if answer.status == _NOT_FOUND:
        return None
    partitions: list[dict[str, Any]] = answer.json()["partitions"]
    return partitions


def _marks_of(partition: Mapping[str, Any], isolation: str) -> PartitionMarks:
    is_committed = isolation == "read_committed"
    return PartitionMarks(
        int(partition["log_start_offset"]),
        int(partition["high_watermark"]),
        int(partition["last_stable_offset"]) if is_committed else None,
    )


def _is_of_another_topic(answer: Answer, topic_id: str) -> bool:
    """Whether the answer is of another topic than the one that was planned for."""
    found, _, _ = answer.headers.get("log-id", "").rpartition(".")
    return bool(topic_id and found) and found != topic_id


def _next_offset(answer: Answer) -> int:
    text = answer.headers.get("log-next-offset", "")
    if not text.isdecimal():
        raise ServiceError("the service answered batches without Log-Next-Offset: is it tidelog?")
    return int(text)
