"""The data source `tidelog-ranges`: offset ranges that a stream has planned, as a batch.

A micro-batch of many topics is written topic by topic. Each of them is a query of its own over just
its ranges, so that no record is fetched twice. For the ingestion job only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.records.columns import columns_of, spark_schema
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.tasks import OffsetRange, plan_tasks, ranges_of

_FORMAT: Final = "tidelog-ranges"
_RANGES: Final = "ranges"


class RangesSource(DataSource):
    """Reads offset ranges with the options of a stream."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return _FORMAT

    def schema(self) -> StructType:
        """Return the columns of the source."""
        return spark_schema(include_headers=self._parsed().include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        ranges = [OffsetRange(*fields) for fields in json.loads(self.options[_RANGES])]
        return _RangesReader(self._parsed(), columns_of(schema), ranges)

    def _parsed(self) -> Options:
        return Options.parse({k: v for k, v in self.options.items() if k.lower() != _RANGES})


class _RangesReader(DataSourceReader):
    """Plans on the driver; reads on the executors, as a pickled copy."""

    def __init__(
        self, options: Options, columns: Sequence[str], ranges: Sequence[OffsetRange]
    ) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        with ServiceClient(self._options.endpoint) as client:
            return plan_tasks(client, self._ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        yield from read_ranges(self._options, self._columns, ranges_of(partition))


def load_ranges(
    spark: SparkSession, options: dict[str, str], ranges: Sequence[OffsetRange]
) -> DataFrame:
    """Return the records of the ranges; `options` are those of the stream."""
    spark.dataSource.register(RangesSource)
    wanted = json.dumps(
        [[r.topic, r.partition, r.start_offset, r.end_offset, r.topic_id] for r in ranges]
    )
    return spark.read.format(_FORMAT).options(**options, **{_RANGES: wanted}).load()
