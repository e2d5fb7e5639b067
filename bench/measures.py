"""What is measured: each function runs one measure against the service and returns its figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.appends import ndjson, raw, single
from bench.archive import archive
from bench.backfill import backfill
from bench.crowd import waiting
from bench.figures import Figure
from bench.follow import follow
from bench.ingest import ingest
from bench.kafka import kafka
from bench.lake import lake
from bench.lakes import lakes
from bench.reads import reads
from bench.spark import spark
from bench.start import start
from bench.target import Bench

Measure = Callable[[Bench], list[Figure]]


MEASURES: Final[dict[str, Measure]] = {
    "single": single,
    "ndjson": ndjson,
    "raw": raw,
    "ingest": ingest,
    "reads": reads,
    "waiting": waiting,
    "start": start,
    "spark": spark,
    "lakes": lakes,
    "backfill": backfill,
    "lake": lake,
    "follow": follow,
    "kafka": kafka,
    "archive": archive,
}

BY_NAME: Final = ("archive", "kafka", "lakes")
"""Measures that run only if they are named: they need Java 17 and Maven, or versitygw."""
