"""Start and end positions of a query: `earliest`, `latest`, offsets or timestamps.

`startingOffsets` and `endingOffsets` take `earliest`, `latest` or Kafka's JSON, `{"topic": {"0":
23, "1": -2}}`, where -2 is earliest and -1 is latest. `startingTimestamp` and `endingTimestamp`
take milliseconds for all partitions; `...OffsetsByTimestamp` takes the JSON form with milliseconds.
The JSON must name every partition that is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import INT64_MAX, json_object
from pyspark_tidelog.partitions import LogSnapshot, PartitionMarks, TopicPartition

_EARLIEST: Final = -2
_LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """One offset for all partitions, or one for each."""

    default: int | None = None
    offsets: tuple[tuple[TopicPartition, int], ...] = ()

    def resolve(self, option: str, snapshot: LogSnapshot) -> dict[TopicPartition, int]:
        """Return the offset of every partition; raise OptionError for one beyond the log's end."""
        named = dict(self.offsets)
        if self.default is None:
            _require_same_partitions(option, named, snapshot)
        return {
            log: _resolve_one(option, log, named.get(log, self.default), marks)
            for log, marks in snapshot.marks.items()
        }


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """One timestamp for all partitions, or one for each: the first record at or after it."""

    option: str
    """The option's name, for errors."""
    default_ms: int | None = None
    times_ms: tuple[tuple[TopicPartition, int], ...] = ()
    or_latest: bool = False
    """If no record is that late, take the end of the log instead of raising an error."""

    def wanted(self, snapshot: LogSnapshot) -> dict[TopicPartition, int]:
        """Return the timestamp of every partition; raise OptionError if others are named."""
        if self.default_ms is not None:
            return dict.fromkeys(snapshot.marks, self.default_ms)
        named = dict(self.times_ms)
        _require_same_partitions(self.option, named, snapshot)
        return named

    def resolve(
        self, snapshot: LogSnapshot, found: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """Turn the offsets that the service found into positions; None means no record so late."""
        offsets: dict[TopicPartition, int] = {}
        for log, marks in snapshot.marks.items():
            offset = found.get(log)
            if offset is None and not self.or_latest:
                raise OptionError(
                    f"option {self.option}: {log} has no record at or after "
                    f"{self.wanted(snapshot)[log]}: set startingOffsetsByTimestampStrategy to "
                    f"latest to begin at its end"
                )
            # The log may have grown since the snapshot.
            offsets[log] = min(marks.end_offset if offset is None else offset, marks.end_offset)
        return offsets


Position: TypeAlias = OffsetSpec | TimeSpec

EARLIEST: Final = OffsetSpec(default=_EARLIEST)
LATEST: Final = OffsetSpec(default=_LATEST)


def parse_position(given: Mapping[str, str], side: str, *, or_latest: bool) -> Position | None:
    """Read the position of one side, `starting` or `ending`; None if no option sets it.

    If several options set it, the first of timestamp, timestamps by partition and offsets counts,
    as in Spark's Kafka source.
    """
    options = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    time, times, offsets = (given.get(option.lower()) for option in options)
    if time is not None:
        return _parse_time(options[0], time, or_latest=or_latest)
    if times is not None:
        return _parse_times(options[1], times, or_latest=or_latest)
    return None if offsets is None else parse_offset_spec(options[2], offsets)


def parse_offset_spec(option: str, text: str) -> OffsetSpec:
    """Read `earliest`, `latest` or the JSON form; raise OptionError for anything else."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    offsets = _partition_numbers(text, at_least=_EARLIEST)
    if not offsets:
        raise OptionError(
            f"option {option} must be earliest, latest or JSON such as "
            f'{{"topic": {{"0": 23, "1": -2}}}} (-2 earliest, -1 latest), not {text!r}'
        )
    return OffsetSpec(offsets=tuple(sorted(offsets.items())))


def _parse_time(option: str, text: str, *, or_latest: bool) -> TimeSpec:
    number = int(text) if text.strip().isdecimal() else -1
    if not 0 <= number <= INT64_MAX:
        raise OptionError(f"option {option} must be milliseconds since 1970, not {text!r}")
    return TimeSpec(option, default_ms=number, or_latest=or_latest)


def _parse_times(option: str, text: str, *, or_latest: bool) -> TimeSpec:
    times_ms = _partition_numbers(text, at_least=0)
    if not times_ms:
        raise OptionError(
            f"option {option} must be JSON such as "
            f'{{"topic": {{"0": 1700000000000}}}}, in milliseconds since 1970, not {text!r}'
        )
    return TimeSpec(option, times_ms=tuple(sorted(times_ms.items())), or_latest=or_latest)


def _partition_numbers(text: str, *, at_least: int) -> dict[TopicPartition, int]:
    """Read `{"topic": {"0": 23}}`; return an empty dict for any other text."""
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


def _require_same_partitions(
    option: str, named: Mapping[TopicPartition, int], snapshot: LogSnapshot
) -> None:
    """Raise OptionError unless the option names exactly the partitions that are read."""
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
