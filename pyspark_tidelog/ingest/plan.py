"""A job made out of what was said: where its rows go, what they look like, what must not change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import StructType

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.ingest.job import INFER, IngestJob
from pyspark_tidelog.lake.checkpoint import Terms, load_identity, local_folder
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.folders import FolderSink
from pyspark_tidelog.lake.inference import SAMPLE_RECORDS, infer_schema
from pyspark_tidelog.lake.layout import Layout, parse_partition_column
from pyspark_tidelog.lake.target import Place, Sink, parse_place, require_delta
from pyspark_tidelog.partitions import LogSnapshot
from pyspark_tidelog.source.fetch import read_range
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.positions import EARLIEST
from pyspark_tidelog.source.service import resolve
from pyspark_tidelog.source.tasks import OffsetRange


@dataclass(frozen=True, slots=True)
class Plan:
    """What one job does with every micro-batch."""

    place: Place
    layout: Layout
    terms: Terms

    @staticmethod
    def place_of(job: IngestJob) -> Place:
        """Return where the job writes; raise OptionError where that is nowhere."""
        place = parse_place(job.to)
        if place.kind == "delta":
            require_delta()
        return place

    @classmethod
    def make(
        cls,
        job: IngestJob,
        place: Place,
        options: Options,
        client: ServiceClient,
        snapshot: LogSnapshot,
    ) -> Plan:
        """Settle everything before anything is made; raise OptionError or JobError otherwise."""
        values = _values(job, options, client, snapshot)
        partition_by = tuple(map(parse_partition_column, job.partition_by))
        layout = Layout(values, partition_by, has_headers=options.include_headers)
        if job.quarantine is not None and values is None:
            raise OptionError("a quarantine is for values that do not fit: give a schema, too")
        terms = Terms(
            sink=str(place),
            topic_ids=dict(sorted(snapshot.topic_ids.items())),
            schema=None if values is None else values.jsonValue(),
            partition_by=tuple(job.partition_by),
            quarantine=None if values is None else str(_quarantine(job, place)),
            include_headers=options.include_headers,
            isolation=options.isolation,
        )
        return cls(place, layout, terms)

    def sink(self, job_id: str) -> Sink:
        """Return the sink for the rows."""
        names = tuple(self.layout.partition_names())
        if self.place.kind == "delta":
            from pyspark_tidelog.lake.delta import DeltaSink  # noqa: PLC0415 -- an extra

            return DeltaSink(self.place.folder, job_id, names)
        return FolderSink(self.place.kind, self.place.folder, names)

    def quarantine(self) -> Sink | None:
        """Return the sink for the records that do not fit, always Parquet: it keeps every byte."""
        if self.terms.quarantine is None:
            return None
        return FolderSink("parquet", Path(self.terms.quarantine))


def _values(
    job: IngestJob, options: Options, client: ServiceClient, snapshot: LogSnapshot
) -> StructType | None:
    """Return the columns of the values; what was inferred once stays."""
    if job.schema is None:
        return None
    if job.schema != INFER:
        return parse_schema(job.schema)
    known = load_identity(local_folder("the checkpoint", job.checkpoint))
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


def _quarantine(job: IngestJob, place: Place) -> Path:
    if job.quarantine is None:
        return place.folder / "_quarantine"
    return local_folder("the quarantine", job.quarantine)
