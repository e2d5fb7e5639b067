"""The ingestion job into each kind of local table, and the verifier over what it wrote."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from bench.memory import tree_seconds
from bench.spark import fill
from bench.target import Bench
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.session import local_conf, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TOPIC: Final = "lake"
_PARTITIONS: Final = 4
_RECORDS: Final = 10_000_000
_KINDS: Final = ("parquet", "delta")
_ROUNDS: Final = 2  # in turn, so that a busy moment hits both
_CORES: Final = 2


def lake(bench: Bench) -> list[Figure]:
    """Ten million records of 150 bytes in micro-batches of a million, then all of them verified."""
    bench.create_topic(_TOPIC, _PARTITIONS)
    fill(bench, _TOPIC, _RECORDS, _PARTITIONS)
    taken: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    with local_session(local_conf(cores=_CORES)) as session:
        for _ in range(_ROUNDS):
            for kind in _KINDS:
                taken[kind].append(_ingest(bench, kind, session))
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    verdict = Lake(f"parquet:{bench.folder / 'parquet' / 'lake'}").verify(
        {"url": bench.service.url}
    )
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    if (verdict.rows, verdict.is_same) != (_RECORDS, True):
        raise SystemExit(f"the lake differs from the log: {verdict}")
    ratio = median(p / d for p, d in zip(taken["parquet"], taken["delta"], strict=True))
    note = ", ".join(
        f"{kind} {median(seconds) / _RECORDS * 1e9:,.0f} ns of processor a record"
        for kind, seconds in taken.items()
    )
    return [
        Figure(
            "Delta beside Parquet, records per processor second", ratio, "times", 0.95, note=note
        ),
        Figure(
            "ten million records verified",
            wall_s,
            "s",
            target=120,
            is_ceiling=True,
            note=f"{cpu_s:.0f} s of processor",
        ),
    ]


def _ingest(bench: Bench, kind: str, session: SparkSession) -> float:
    """Fill a new table; return the processor seconds of the driver, Java and the workers."""
    folder: Path = bench.folder / kind
    shutil.rmtree(folder, ignore_errors=True)
    job = IngestJob(
        bench.service.url, _TOPIC, f"{kind}:{folder / 'lake'}", str(folder / "checkpoint")
    )
    before_s = _tree_s()
    report = run(job, spark=session)
    if report.rows != _RECORDS:
        raise SystemExit(f"{report.rows} of {_RECORDS} records were read")
    return _tree_s() - before_s


def _tree_s() -> float:
    return tree_seconds(os.getpid())
