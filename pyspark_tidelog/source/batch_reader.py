"""The reader of batch queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.positions import EARLIEST, LATEST, TimeSpec
from pyspark_tidelog.source.pushdown import PushedFilters
from pyspark_tidelog.source.service import resolve, snapshot_of
from pyspark_tidelog.source.tasks import OffsetRange, plan_tasks, ranges_of


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
