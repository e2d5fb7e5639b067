"""Plans a job from its options: the lake, the columns, and what must not change later."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.types import StructType

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.ingest.bad_records import (
    TOPIC,
    BadRecords,
    BadRecordsTable,
    BadRecordsTopic,
)
from pyspark_tidelog.ingest.job import INFER, IngestJob
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.identity import Terms, load_identity
from pyspark_tidelog.lake.inference import SAMPLE_RECORDS, ddl_of, infer_schema
from pyspark_tidelog.lake.layout import Layout, parse_partition_column
from pyspark_tidelog.option_values import ensure_topic_name
from pyspark_tidelog.partitions import LogSnapshot
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.positions import EARLIEST
from pyspark_tidelog.source.service import resolve, snapshot_of
from pyspark_tidelog.source.tasks import OffsetRange
from pyspark_tidelog.source.topics import Topics
from pyspark_tidelog.tables.opening import open_table
from pyspark_tidelog.tables.places import Place
from pyspark_tidelog.tables.table import Table
from pyspark_tidelog.tables.target import Target, parse_target

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the job does with every micro-batch."""

    target: Target
    layout: Layout
    terms: Terms
    job: IngestJob

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
        if job.rescue is not None and values is None:
            raise OptionError("--rescue is for fields that a schema does not have: give a schema")
        layout = Layout(values, partition_by, options.include_headers, job.rescue)
        bad_records = _bad_records(job, client, snapshot)
        if bad_records is not None and values is None:
            raise OptionError("--bad-records is for values that do not fit a schema: give a schema")
        terms = Terms(
            sink=str(target),
            topic_ids=dict(sorted(snapshot.topic_ids.items())),
            schema=None if values is None else values.jsonValue(),
            partition_by=tuple(job.partition_by),
            bad_records=bad_records,
            include_headers=options.include_headers,
            isolation=options.isolation,
            rescue=job.rescue,
        )
        return cls(target, layout, terms, job)

    def table(self) -> Table:
        """Return the table for the rows."""
        return open_table(self.target, self.layout.partition_names())

    def bad_records(self) -> BadRecords | None:
        """Return where records go that do not fit; None if they stop the job."""
        text = self.terms.bad_records
        if text is None:
            return None
        if text.startswith(TOPIC):
            return BadRecordsTopic.of(text.removeprefix(TOPIC), self.job, str(self.target))
        return BadRecordsTable(open_table(parse_target(text)))

    def places(self) -> list[Place]:
        """Return the places that belong to this job, that of the rows first."""
        bad = self.bad_records()
        bad_tables = [bad.table] if isinstance(bad, BadRecordsTable) else []
        return [table.place for table in (self.table(), *bad_tables)]


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
    checkpoint = Checkpoint(job.checkpoint).place
    known = load_identity(checkpoint if job.topic_pattern is None else open_table(target).place)
    if known is not None and known.terms.schema is not None:
        return StructType.fromJson(dict(known.terms.schema))
    schema = infer_schema(_sample(options, client, snapshot))
    _LOG.warning("the schema that was inferred, to edit and give as --schema: %s", ddl_of(schema))
    return schema


def _sample(
    options: Options, client: ServiceClient, snapshot: LogSnapshot
) -> Iterator[bytes | None]:
    starts = resolve(client, options.starting or EARLIEST, "startingOffsets", snapshot)
    for log, start in starts.items():
        end = min(start + SAMPLE_RECORDS, snapshot.marks[log].end_offset)
        if start < end:
            topic_id = snapshot.topic_ids[log.topic]
            wanted = OffsetRange(log.topic, log.partition, start, end, topic_id)
            for batch in read_ranges(options, ["value"], [wanted]):
                yield from batch.column("value").to_pylist()


def _bad_records(job: IngestJob, client: ServiceClient, snapshot: LogSnapshot) -> str | None:
    """Return the place for bad records in one form; raise OptionError if it cannot be one."""
    text = job.bad_records
    if text is None:
        return None
    if not text.startswith(TOPIC):
        target = parse_target(text)
        open_table(target)  # a package may be missing
        return str(target)
    topic = text.removeprefix(TOPIC)
    ensure_topic_name("bad-records", topic)
    if topic in snapshot.topic_ids:
        raise OptionError(f"--bad-records {text}: the job reads this topic; choose another")
    snapshot_of(client, Topics((topic,)))
    return text
