"""tidelog for Spark: the data source `tidelog`, batch and streaming, and the ingestion job.

Spark finds the format by itself where this package is installed: the name of the package starts
with `pyspark_`, and it has a `DefaultSource`.

    spark.read.format("tidelog").option("url", "http://127.0.0.1:8080").option("subscribe",
    "flights").load()

The rooms, top to bottom; each imports only those below it:

    ingest            the ingestion job
    lake              the tables it fills; verify and compact
    session           a local Spark session
    data_source       what Spark calls
    source | sink     the read side | the write side
    client            HTTP to the service
    records           Kafka's record batches to Arrow columns and back

The package imports nothing of the service, because it is installed alone on Spark's executors.
"""

from pyspark_tidelog.data_source import TidelogDataSource

DefaultSource = TidelogDataSource

__all__ = ["DefaultSource", "TidelogDataSource"]
