"""The reader of batch queries, and the filters that reduce what it fetches.

The filters are on topic, partition, offset and timestamp. Spark pushes filters down to a Python
source only if `spark.sql.python.filterPushdown.enabled` is set; if it is not, Spark fails every
batch query of a source that accepts filters. So the source accepts them only if its option
`pushFilters` is set.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import INT64_MAX
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.positions import EARLIEST, LATEST, TimeSpec
from pyspark_tidelog.source.service import resolve, snapshot_of
from pyspark_tidelog.source.tasks import OffsetRange, plan_tasks, ranges_of

_NEVER_NULL: Final = frozenset({("topic",), ("partition",), ("offset",), ("timestamp",)})
_OF_LOGS: Final[Mapping[tuple[str, ...], type]] = {("partition",): int, ("topic",): str}

_COMPARED: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


class PushedFilters:
    """The part of the log that the filters of a query leave; pickled with the reader."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = INT64_MAX
        """Exclusive."""
        self.since_ms: int | None = None
        """The filters let no record through before the first with this timestamp or a later one."""
        self._of_logs: list[Filter] = []

    def take(self, wanted: Filter) -> bool:
        """Apply a filter; return False if Spark has to apply it to the rows as well."""
        column: tuple[str, ...] = getattr(wanted, "attribute", ())
        if isinstance(wanted, IsNotNull):
            return column in _NEVER_NULL
        if column == ("offset",):
            return self._take_offset(wanted)
        if column == ("timestamp",):
            return self._take_time(wanted)
        kind = _OF_LOGS.get(column)
        if kind is None or not _is_supported(wanted, kind):
            return False
        self._of_logs.append(wanted)
        return True

    def admits(self, log: TopicPartition) -> bool:
        """Whether a partition can hold a row that passes all filters."""
        return all(_passes(wanted, log) for wanted in self._of_logs)

    def _take_offset(self, wanted: Filter) -> bool:
        if not _is_supported(wanted, int):
            return False
        value = getattr(wanted, "value")  # noqa: B009 -- supported filters have one
        least, most = (min(value), max(value)) if isinstance(wanted, In) else (value, value)
        if not isinstance(wanted, (LessThan, LessThanOrEqual)):
            self.start_offset = max(self.start_offset, least + isinstance(wanted, GreaterThan))
        if not isinstance(wanted, (GreaterThan, GreaterThanOrEqual)):
            self.end_offset = min(self.end_offset, most + (not isinstance(wanted, LessThan)))
        return not isinstance(wanted, In)

    def _take_time(self, wanted: Filter) -> bool:
        """Start at a timestamp. Later records may be older, so Spark filters the rows as well."""
        if isinstance(wanted, (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)):
            moment = wanted.value
            if isinstance(moment, datetime) and moment.tzinfo is not None:
                since_ms = max(int(moment.timestamp() * 1000) - 1, 0)  # a float is not exact
                self.since_ms = max(self.since_ms or 0, since_ms)
        return False


def _is_supported(wanted: Filter, kind: type) -> bool:
    value = getattr(wanted, "value", None)
    if isinstance(wanted, In):
        return bool(value) and all(type(one) is kind for one in wanted.value)
    return type(wanted) in _COMPARED and type(value) is kind


def _passes(wanted: Filter, log: TopicPartition) -> bool:
    actual = getattr(log, getattr(wanted, "attribute")[0])  # noqa: B009 -- supported ones have one
    if isinstance(wanted, In):
        return actual in wanted.value
    return _COMPARED[type(wanted)](actual, getattr(wanted, "value"))  # noqa: B009 -- the same


class BatchReader(DataSourceReader):
    """Plans on the driver; reads on the executors, as a pickled copy."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._filters = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks. Their ends are fixed here, so a repeated task reads the same."""
        options, filters = self._options, self._filters
        with ServiceClient(options.endpoint) as client:
            snapshot = snapshot_of(client, options.topics, isolation=options.isolation)
            starts = resolve(client, options.starting or EARLIEST, "startingOffsets", snapshot)
            ends = resolve(client, options.ending or LATEST, "endingOffsets", snapshot)
            for log, start in starts.items():
                if start > ends[log]:
                    raise OptionError(
                        f"startingOffsets {start} of {log} lies after its endingOffsets {ends[log]}"
                    )
            if filters.since_ms is not None:
                since = TimeSpec("", default_ms=filters.since_ms, or_latest=True)
                since_offsets = resolve(client, since, "", snapshot)
                starts = {log: max(start, since_offsets[log]) for log, start in starts.items()}
            ranges = [
                OffsetRange(
                    log.topic,
                    log.partition,
                    max(start, filters.start_offset),
                    min(ends[log], filters.end_offset),
                    snapshot.topic_ids[log.topic],
                )
                for log, start in sorted(starts.items())
                if filters.admits(log)
            ]
            return plan_tasks(client, ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        yield from read_ranges(self._options, self._columns, ranges_of(partition))


class FilteringReader(BatchReader):
    """A batch reader that fetches only the records that the query's filters may let through."""

    # The name is PySpark's.
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Yield the filters that Spark has to apply itself."""
        for wanted in filters:
            if not self._filters.take(wanted):
                yield wanted
