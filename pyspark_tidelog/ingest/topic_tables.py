"""One job for many topics: a table for each, opened when the topic's first records are planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby

from pyspark.sql import DataFrame

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.ingest.bad_records import TOPIC
from pyspark_tidelog.ingest.job import INFER, IngestJob
from pyspark_tidelog.ingest.plan import Plan
from pyspark_tidelog.ingest.table_writer import TableWriter
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.lake.identity import Identity, Terms, join
from pyspark_tidelog.partitions import LogSnapshot
from pyspark_tidelog.ranges_source import load_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.service import snapshot_of
from pyspark_tidelog.source.topics import Topics
from pyspark_tidelog.tables.target import Target, parse_target


class TopicTables:
    """The tables of a job with `--topic-pattern`; the stack keeps their locks."""

    def __init__(
        self,
        job: IngestJob,
        target: Target,
        options: Options,
        identity: Identity,
        *,
        checkpoint: Checkpoint,
        stack: ExitStack,
    ) -> None:
        self._job = job
        self._target = target
        self._options = options
        self._identity = identity
        self._checkpoint = checkpoint
        self._stack = stack
        self._writers: dict[str, TableWriter] = {}

    def check(self, records: DataFrame) -> None:
        """Do nothing: the columns of a topic are known when it has records."""

    def parts(self, frame: DataFrame, batch_id: int) -> Iterator[tuple[TableWriter, DataFrame]]:
        """Yield the records of each topic of a micro-batch, and the writer of its table."""
        ranges = self._checkpoint.planned_ranges(batch_id)
        for topic, own in groupby(ranges, key=lambda one: one.topic):
            rows = load_ranges(frame.sparkSession, self._job.source_options(), [*own])
            yield self._writer(topic), rows

    def _writer(self, topic: str) -> TableWriter:
        if topic not in self._writers:
            options = replace(self._options, topics=Topics((topic,)))
            with ServiceClient(options.endpoint) as client:
                snapshot = snapshot_of(client, options.topics, isolation=options.isolation)
                plan = Plan.make(
                    self._job_of(topic), self._target.child(topic), options, client, snapshot
                )
            own = replace(self._identity, terms=plan.terms)
            join(self._stack, self._checkpoint, plan.places(), own)
            run = self._checkpoint.run
            self._writers[topic] = TableWriter(
                plan, self._identity.job_id, run, self._job.compact_every_s
            )
        return self._writers[topic]

    def _job_of(self, topic: str) -> IngestJob:
        """Return the job with a table of the topic's own for bad records."""
        place = self._job.bad_records
        if place is None or place.startswith(TOPIC):
            return self._job
        return replace(self._job, bad_records=str(parse_target(place).child(topic)))


def terms_of(job: IngestJob, target: Target, options: Options, client: ServiceClient) -> Terms:
    """Return what cannot change of a job with a pattern; raise OptionError if it cannot run."""
    known = replace(job, schema=None, partition_by=(), rescue=None) if job.schema == INFER else job
    plan = Plan.make(known, target, options, client, LogSnapshot({}, {}))
    return replace(
        plan.terms,
        topic_pattern=job.topic_pattern,
        partition_by=tuple(job.partition_by),
        rescue=job.rescue,
    )
