"""Places in the log by time: the first record at or after a moment, in every partition.

`startingTimestamp` and `endingTimestamp` are milliseconds for all partitions, the options
`…OffsetsByTimestamp` Kafka's JSON, `{"topic": {"0": 1700000000000}}`, for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import INT64_MAX
from pyspark_tidelog.positions import (
    LogSnapshot,
    TopicPartition,
    partition_numbers,
    require_same_partitions,
)


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """A moment in every partition: one for all of them, or one for each."""

    option: str
    """Its name, for errors."""
    default_ms: int | None = None
    times_ms: tuple[tuple[TopicPartition, int], ...] = ()
    or_latest: bool = False
    """Where no record is as late, take the end of the log; otherwise that is an error."""

    def wanted(self, snapshot: LogSnapshot) -> dict[TopicPartition, int]:
        """Return the moment of every partition; raise OptionError if others are named."""
        if self.default_ms is not None:
            return dict.fromkeys(snapshot.marks, self.default_ms)
        named = dict(self.times_ms)
        require_same_partitions(self.option, named, snapshot)
        return named

    def resolve(
        self, snapshot: LogSnapshot, found: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """Return the offsets, with what the service found; None is no record as late as that."""
        times_ms = self.wanted(snapshot)
        offsets: dict[TopicPartition, int] = {}
        for log, marks in snapshot.marks.items():
            offset = found.get(log)
            if offset is None and not self.or_latest:
                raise OptionError(
                    f"option {self.option}: {log} has no record at or after {times_ms[log]}: set "
                    f"startingOffsetsByTimestampStrategy to latest to begin at its end"
                )
            # Found a moment after the snapshot was taken: the log may have grown, or lost its
            # start.
            end = marks.end_offset
            offsets[log] = end if offset is None else min(offset, end)
        return offsets


def parse_time(option: str, text: str, *, or_latest: bool) -> TimeSpec:
    """Read milliseconds; raise OptionError for anything else."""
    number = int(text) if text.strip().isdecimal() else -1
    if not 0 <= number <= INT64_MAX:
        raise OptionError(f"option {option} must be milliseconds since 1970, not {text!r}")
    return TimeSpec(option, default_ms=number, or_latest=or_latest)


def parse_times(option: str, text: str, *, or_latest: bool) -> TimeSpec:
    """Read the JSON form; raise OptionError for anything else."""
    times_ms = partition_numbers(text, at_least=0)
    if not times_ms:
        raise OptionError(
            f"option {option} must be JSON such as "
            f'{{"topic": {{"0": 1700000000000}}}}, in milliseconds since 1970, not {text!r}'
        )
    return TimeSpec(option, times_ms=tuple(sorted(times_ms.items())), or_latest=or_latest)
