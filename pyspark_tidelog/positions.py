"""Places in the log, and the words a query has for them.

`startingOffsets` and `endingOffsets` are `earliest`, `latest` or Kafka's JSON, `{"topic": {"0": 23,
"1": -2}}`, where -2 is earliest and -1 is latest and every partition of the topics read must be
named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark_tidelog.errors import OptionError

_EARLIEST: Final = -2
_LATEST: Final = -1


class TopicPartition(NamedTuple):
    """One log; `str()` of it is Kafka's name of its folder."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def described(self) -> str:
        """The log in the words of an error message."""
        return f"topic {self.topic}, partition {self.partition}"


class PartitionMarks(NamedTuple):
    """How far one log reaches, at one moment."""

    log_start_offset: int
    high_watermark: int
    """Exclusive end of what may be read: everything below it is on disk."""


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """How far the topics of a query reach, and which topics they are, at one moment."""

    topic_ids: Mapping[str, str]
    """A topic that is deleted and made again keeps its name and changes its id."""
    marks: Mapping[TopicPartition, PartitionMarks]


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """A place in every partition: one word for all of them, or an offset for each."""

    default: int | None = None
    offsets: tuple[tuple[TopicPartition, int], ...] = ()

    def resolve(self, option: str, snapshot: LogSnapshot) -> dict[TopicPartition, int]:
        """Return the offset of every partition; raise OptionError where it lies beyond the log."""
        named = dict(self.offsets)
        if self.default is None:
            _require_same_partitions(option, named, snapshot)
        return {
            log: _resolve_one(option, log, named.get(log, self.default), marks)
            for log, marks in snapshot.marks.items()
        }


EARLIEST: Final = OffsetSpec(default=_EARLIEST)
LATEST: Final = OffsetSpec(default=_LATEST)


def parse_offset_spec(option: str, text: str) -> OffsetSpec:
    """Read `earliest`, `latest` or the JSON form; raise OptionError for anything else."""
    word = text.strip().lower()
    if word == "earliest":
        return EARLIEST
    if word == "latest":
        return LATEST
    try:
        topics = json.loads(text)
        offsets = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError):
        offsets = {}
    if not offsets or not all(_is_offset(offset) for offset in offsets.values()):
        raise OptionError(
            f"option {option} must be earliest, latest or JSON such as "
            f'{{"topic": {{"0": 23, "1": -2}}}} (-2 earliest, -1 latest), not {text!r}'
        )
    return OffsetSpec(offsets=tuple(sorted(offsets.items())))


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _EARLIEST <= value < 1 << 63


def _require_same_partitions(
    option: str, named: Mapping[TopicPartition, int], snapshot: LogSnapshot
) -> None:
    missing = sorted(snapshot.marks.keys() - named.keys())
    if missing:
        raise OptionError(f"option {option} must name every partition: {missing[0]} is missing")
    foreign = sorted(named.keys() - snapshot.marks.keys())
    if foreign:
        raise OptionError(f"option {option} names {foreign[0]}, which is not among those read")


def _resolve_one(
    option: str, log: TopicPartition, offset: int | None, marks: PartitionMarks
) -> int:
    if offset == _EARLIEST:
        return marks.log_start_offset
    if offset is None or offset == _LATEST:
        return marks.high_watermark
    if offset > marks.high_watermark:
        raise OptionError(
            f"option {option}: {log} ends at offset {marks.high_watermark}, before {offset}"
        )
    return offset
