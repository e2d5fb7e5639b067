"""The batch reader: every record between two cuts through the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.positions import EARLIEST, LATEST
from pyspark_tidelog.source.fetch import read_split
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.pushdown import Narrowing
from pyspark_tidelog.source.service import resolve, snapshot_of
from pyspark_tidelog.source.splits import Split
from pyspark_tidelog.source.tasks import plan_tasks
from pyspark_tidelog.source.times import TimeSpec


class BatchReader(DataSourceReader):
    """Plans on the driver; reads on the executors, on a pickled copy of itself."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task per range; its end is fixed here, for a task may be repeated."""
        options = self._options
        with ServiceClient(options.endpoint) as client:
            snapshot = snapshot_of(client, options.topics, isolation=options.isolation)
            starts = resolve(client, options.starting or EARLIEST, "startingOffsets", snapshot)
            ends = resolve(client, options.ending or LATEST, "endingOffsets", snapshot)
            for log, start in starts.items():
                if start > ends[log]:
                    raise OptionError(
                        f"startingOffsets {start} of {log} lies after its endingOffsets {ends[log]}"
                    )
            narrowing = self._narrowing
            if narrowing.since_ms is not None:
                since = TimeSpec("", default_ms=narrowing.since_ms, or_latest=True)
                since_offsets = resolve(client, since, "", snapshot)
                starts = {log: max(start, since_offsets[log]) for log, start in starts.items()}
            ranges = [
                Split(
                    log.topic,
                    log.partition,
                    max(start, narrowing.start_offset),
                    min(ends[log], narrowing.end_offset),
                    snapshot.topic_ids[log.topic],
                )
                for log, start in sorted(starts.items())
                if narrowing.admits(log)
            ]
            return plan_tasks(client, ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task; of an empty plan Spark makes one task without a split."""
        if isinstance(partition, Split):
            yield from read_split(self._options, self._columns, partition)


class FilteringReader(BatchReader):
    """A batch reader that fetches only what the filters of the query may let through."""

    # The name is PySpark's.
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Yield the filters that Spark has to apply itself."""
        for wanted in filters:
            if not self._narrowing.take(wanted):
                yield wanted
