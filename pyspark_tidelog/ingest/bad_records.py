"""Where records go whose value does not fit the schema (`--bad-records`): a table, or a topic.

Both hold the whole record and the reason. In a topic, the reason and the place of the record are
headers with the names that Kafka Connect gives them in its dead letter queue.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 -- as everywhere in Spark

from pyspark_tidelog.endpoint import ENDPOINT_OPTIONS
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.lake.layout import REASON
from pyspark_tidelog.records.columns import HEADERS
from pyspark_tidelog.tables.table import Batch, Table

TOPIC: Final = "topic:"

_PLACES: Final = {
    "__connect.errors.topic": "topic",
    "__connect.errors.partition": "partition",
    "__connect.errors.offset": "offset",
    "__connect.errors.exception.message": REASON,
}


class BadRecords(Protocol):
    """Stores the bad records of each micro-batch once."""

    def add(self, bad: DataFrame, batch: Batch) -> int:
        """Store them, unless that was done before, and return their number."""


@dataclass(frozen=True, slots=True)
class BadRecordsTable:
    """A table of any kind."""

    table: Table

    def add(self, bad: DataFrame, batch: Batch) -> int:
        if self.table.has(batch):
            return 0
        staged = self.table.stage(bad, batch)
        self.table.publish(staged)
        return staged.rows


@dataclass(frozen=True, slots=True)
class BadRecordsTopic:
    """A topic of the same service."""

    topic: str
    options: Mapping[str, str] = field(repr=False)
    """Of the sink: the service and its credentials."""
    table: str
    """Of the records that fit; a job can fill several."""

    @classmethod
    def of(cls, topic: str, job: IngestJob, table: str) -> BadRecordsTopic:
        given = job.source_options()
        own: dict[str, str] = {name: given[name] for name in ENDPOINT_OPTIONS if name in given}
        return cls(topic, own, table)

    def add(self, bad: DataFrame, batch: Batch) -> int:
        """Write them with a name of their own, by which the sink recognizes a repeated write."""
        seen = Observation()
        counted = bad.observe(seen, F.count(F.lit(1)).alias("rows"))
        places = F.array(*(_header(name, F.col(column)) for name, column in _PLACES.items()))
        if HEADERS in bad.columns:
            places = F.concat(F.coalesce(F.col(HEADERS), F.array()), places)
        records = counted.select("key", "value", "timestamp", places.alias(HEADERS))
        table = hashlib.sha256(self.table.encode()).hexdigest()[:8]
        name = f"{batch.job_id}/{batch.number}/{table}"
        writer = records.write.format("tidelog").mode("append").options(**self.options)
        writer.option("topic", self.topic).option("writeId", name).save()
        return int(seen.get["rows"])


def _header(name: str, column: Column) -> Column:
    text = column.cast("string").cast("binary")
    return F.struct(F.lit(name).alias("key"), text.alias("value"))
