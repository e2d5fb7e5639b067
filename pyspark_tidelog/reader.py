"""The batch reader: every record between two cuts through the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.fetch import read_split
from pyspark_tidelog.options import Options
from pyspark_tidelog.positions import EARLIEST, LATEST
from pyspark_tidelog.service import snapshot_of
from pyspark_tidelog.splits import Split, plan_splits


class BatchReader(DataSourceReader):
    """Plans on the driver; reads on the executors, on a pickled copy of itself."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task per range; its end is fixed here, for a task may be repeated."""
        options = self._options
        with ServiceClient(options.endpoint) as client:
            snapshot = snapshot_of(client, options.topics)
        starts = (options.starting or EARLIEST).resolve("startingOffsets", snapshot)
        ends = (options.ending or LATEST).resolve("endingOffsets", snapshot)
        for log, start in starts.items():
            if start > ends[log]:
                raise OptionError(
                    f"startingOffsets {start} of {log} lies after its endingOffsets {ends[log]}"
                )
        ranges = [
            Split(log.topic, log.partition, start, ends[log], snapshot.topic_ids[log.topic])
            for log, start in sorted(starts.items())
        ]
        return plan_splits(ranges, min_partitions=options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task; of an empty plan Spark makes one task without a split."""
        if isinstance(partition, Split):
            yield from read_split(self._options, self._columns, partition)
