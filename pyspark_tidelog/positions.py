"""Places in the log, and the words a query has for them.

`startingOffsets` and `endingOffsets` are `earliest`, `latest` or Kafka's JSON, `{"topic": {"0": 23,
"1": -2}}`, where -2 is earliest and -1 is latest and every partition of the topics read must be
named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import INT64_MAX, json_object

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
    """Everything below it is on disk."""
    last_stable_offset: int | None = None
    """Of a query that reads only what is committed; no open transaction begins below it."""

    @property
    def end_offset(self) -> int:
        """The exclusive end of what the query may read."""
        return self.high_watermark if self.last_stable_offset is None else self.last_stable_offset


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
            require_same_partitions(option, named, snapshot)
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
    offsets = partition_numbers(text, at_least=_EARLIEST)
    if not offsets:
        raise OptionError(
            f"option {option} must be earliest, latest or JSON such as "
            f'{{"topic": {{"0": 23, "1": -2}}}} (-2 earliest, -1 latest), not {text!r}'
        )
    return OffsetSpec(offsets=tuple(sorted(offsets.items())))


def partition_numbers(text: str, *, at_least: int) -> dict[TopicPartition, int]:
    """Read `{"topic": {"0": 23}}`, or return nothing for any other text."""
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in (json_object(text) or {}).items():
        if not isinstance(partitions, dict):
            return {}
        for partition, number in partitions.items():
            is_number = isinstance(number, int) and not isinstance(number, bool)
            if not is_number or not partition.isdecimal() or not at_least <= number <= INT64_MAX:
                return {}
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def require_same_partitions(
    option: str, named: Mapping[TopicPartition, int], snapshot: LogSnapshot
) -> None:
    """Raise OptionError unless the partitions named are those that are read."""
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
        return marks.end_offset
    if offset > marks.end_offset:
        raise OptionError(
            f"option {option}: {log} ends at offset {marks.end_offset}, before {offset}"
        )
    return offset
