"""The data source `tidelog`: the class that Spark finds and calls."""

# ruff: noqa: N802 -- the names of methods are PySpark's

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_tidelog.records.columns import columns_of, spark_schema
from pyspark_tidelog.sink.options import WriteOptions
from pyspark_tidelog.sink.writer import BatchWriter, StreamWriter
from pyspark_tidelog.source.batch_reader import BatchReader, FilteringReader
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.stream_reader import StreamReader


class TidelogDataSource(DataSource):
    """`format("tidelog")` of `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tidelog"

    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source; this also checks the options."""
        return spark_schema(include_headers=Options.parse(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        options = Options.parse(self.options).for_batch()
        kind = FilteringReader if options.push_filters else BatchReader
        return kind(options, columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        return StreamReader(Options.parse(self.options).for_stream(), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 PySpark's
        """Return the writer of a batch query."""
        return BatchWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001 PySpark's
        """Return the writer of a streaming query."""
        options = WriteOptions.parse(self.options).for_stream()
        return StreamWriter(options, schema, overwrite=overwrite)
