"""tidelog for Spark: the data source `tidelog`, batch and streaming, and the ingestion job.

Spark finds the source by itself where this package is installed, because the package is called
`pyspark_…` and has a `DefaultSource`:

    spark.read.format("tidelog").option("url", "http://127.0.0.1:8080").option("subscribe",
    "flights").load()

The package speaks HTTP and nothing else to the log, and needs pyspark, pyarrow, numpy, cramjam and
crc32c alone: it travels without the service to the executors. Read it in this order: `source`,
`stream`, `offsets`, `admission` (driver); `fetch`, `decode`, `records`, `columns` (executors);
`ingest` (the job).
"""

from pyspark_tidelog.source import TidelogDataSource

DefaultSource = TidelogDataSource

__all__ = ["DefaultSource", "TidelogDataSource"]
