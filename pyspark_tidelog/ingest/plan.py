"""Plans a job from its options: the lake, the columns, and what must not change later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import StructType

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.ingest.job import INFER, IngestJob
from pyspark_tidelog.lake.checkpoint import Terms, load_identity
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.inference import SAMPLE_RECORDS, infer_schema
from pyspark_tidelog.lake.layout import Layout, parse_partition_column
from pyspark_tidelog.partitions import LogSnapshot
from pyspark_tidelog.source.fetch import read_range
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.positions import EARLIEST
from pyspark_tidelog.source.service import resolve
from pyspark_tidelog.source.tasks import OffsetRange
from pyspark_tidelog.tables.opening import open_table
from pyspark_tidelog.tables.places import FolderPlace, Place
from pyspark_tidelog.tables.table import Table
from pyspark_tidelog.tables.target import Target, local_folder, parse_target


@dataclass(frozen=True, slots=True)
class Plan:
    """What the job does with every micro-batch."""

    target: Target
    layout: Layout
    terms: Terms

    @staticmethod
    def target_of(job: IngestJob) -> Target:
        """Return the lake that the job writes to; raise OptionError if it cannot."""
        target = parse_target(job.to)
        open_table(target)  # a package may be missing
        return target

    @classmethod
    def make(
        cls,
        job: IngestJob,
        target: Target,
        options: Options,
        client: ServiceClient,
        snapshot: LogSnapshot,
    ) -> Plan:
        """Check all options before anything is created; raise OptionError or JobError."""
        values = _values(job, target, options, client, snapshot)
        partition_by = tuple(map(parse_partition_column, job.partition_by))
        layout = Layout(values, partition_by, has_headers=options.include_headers)
        if job.quarantine is not None and values is None:
            raise OptionError("a quarantine holds values that do not fit the schema: give a schema")
        terms = Terms(
            sink=str(target),
            topic_ids=dict(sorted(snapshot.topic_ids.items())),
            schema=None if values is None else values.jsonValue(),
            partition_by=tuple(job.partition_by),
            quarantine=None if values is None else str(_quarantine(job, target)),
            include_headers=options.include_headers,
            isolation=options.isolation,
        )
        return cls(target, layout, terms)

    def table(self) -> Table:
        """Return the table for the rows."""
        return open_table(self.target, self.layout.partition_names())

    def quarantine(self) -> Table | None:
        """Return the table for records that do not fit: Parquet, which keeps every byte."""
        if self.terms.quarantine is None:
            return None
        return open_table(Target("parquet", self.terms.quarantine))

    def places(self) -> list[Place]:
        """Return the places that belong to this job, that of the rows first."""
        tables = (self.table(), self.quarantine())
        return [table.place for table in tables if table is not None]


def _values(
    job: IngestJob,
    target: Target,
    options: Options,
    client: ServiceClient,
    snapshot: LogSnapshot,
) -> StructType | None:
    """Return the schema of the values; an inferred one is kept with the job's identity."""
    if job.schema is None:
        return None
    if job.schema != INFER:
        return parse_schema(job.schema)
    checkpoint = FolderPlace(local_folder("the checkpoint", job.checkpoint))
    known = load_identity(checkpoint if job.topic_pattern is None else open_table(target).place)
    if known is not None and known.terms.schema is not None:
        return StructType.fromJson(dict(known.terms.schema))
    return infer_schema(_sample(options, client, snapshot))


def _sample(
    options: Options, client: ServiceClient, snapshot: LogSnapshot
) -> Iterator[bytes | None]:
    starts = resolve(client, options.starting or EARLIEST, "startingOffsets", snapshot)
    for log, start in starts.items():
        end = min(start + SAMPLE_RECORDS, snapshot.marks[log].end_offset)
        if start < end:
            topic_id = snapshot.topic_ids[log.topic]
            wanted = OffsetRange(log.topic, log.partition, start, end, topic_id)
            for batch in read_range(options, ["value"], wanted):
                yield from batch.column("value").to_pylist()


def _quarantine(job: IngestJob, target: Target) -> Path:
    if job.quarantine is None:
        return target.folder / "_quarantine"
    return local_folder("the quarantine", job.quarantine)
