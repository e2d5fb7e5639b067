"""Into tables: local Parquet, and Delta and Iceberg in a bucket of a local S3 server, in turn.

The server is versitygw, found by its name: `go install github.com/versity/versitygw/cmd/versitygw`.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from bench.figures import Figure
from bench.spark import fill
from bench.target import Bench
from pyspark_tidelog.session import local_conf, local_session
from pyspark_tidelog.tables.opening import open_table
from pyspark_tidelog.tables.table import Batch, Table
from pyspark_tidelog.tables.target import parse_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_TOPIC: Final = "lakes"
_RECORDS: Final = 2_000_000
_PARTITIONS: Final = 4
_CORES: Final = 2
_RUNS: Final = 5
_LEAST: Final = 0.8


def lakes(bench: Bench) -> list[Figure]:
    """Add two million records of 150 bytes as one micro-batch, five times after one to warm up."""
    program = shutil.which("versitygw")
    if program is None:
        raise SystemExit("lakes: versitygw is not in the path")
    bench.create_topic(_TOPIC)
    fill(bench, _TOPIC, _RECORDS, _PARTITIONS)
    rates: dict[str, list[float]] = {"parquet": [], "delta": [], "iceberg": []}
    with ExitStack() as stack:
        stack.enter_context(_bucket(bench.folder, program))
        session = stack.enter_context(local_session(local_conf(cores=_CORES)))
        reader = session.read.format("tidelog").options(url=bench.service.url, subscribe=_TOPIC)
        tables = {
            "parquet": open_table(parse_target(f"parquet:{bench.folder / 'lake'}")),
            "delta": open_table(parse_target("delta:s3://tide/lake")),
            "iceberg": open_table(parse_target("iceberg:bench.lake.records")),
        }
        (bench.folder / "lake").mkdir()
        tables["iceberg"].place.store("bench")
        for run in range(_RUNS + 1):
            for kind, table in tables.items():
                seconds = _add(table, reader.load(), run)
                if run > 0:
                    rates[kind].append(_RECORDS / seconds)
    local = statistics.median(rates["parquet"])
    figures: list[Figure] = []
    for kind in ("delta", "iceberg"):
        rate = statistics.median(rates[kind])
        note = f"{rate:,.0f} of {local:,.0f} records/s, medians of {_RUNS}"
        name = f"into {kind.title()} on S3, of local Parquet"
        figures.append(Figure(name, rate / local, "ratio", target=_LEAST, note=note))
    return figures


def _add(table: Table, records: DataFrame, number: int) -> float:
    started = time.perf_counter()
    table.publish(table.stage(records, Batch("bench", number)))
    return time.perf_counter() - started


@contextmanager
def _bucket(folder: Path, program: str) -> Iterator[None]:
    """Serve a bucket, and tell Iceberg's catalogue where it is."""
    from pyiceberg.utils.config import Config  # noqa: PLC0415 -- an extra

    told = {
        "PYICEBERG_CATALOG__BENCH__URI": f"sqlite:///{folder}/catalog.db",
        "PYICEBERG_CATALOG__BENCH__WAREHOUSE": "s3://tide/warehouse",
    }
    with (
        s3_server(folder, program),
        patch.dict(os.environ, told),
        patch("pyiceberg.catalog._ENV_CONFIG", new_callable=Config),
    ):
        yield


@contextmanager
def s3_server(folder: Path, program: str) -> Iterator[None]:
    """Serve the bucket `tide`, and tell the libraries how to reach it."""
    (folder / "s3" / "tide").mkdir(parents=True)  # a folder is a bucket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{probe.getsockname()[1]}"
    told = {
        "AWS_ENDPOINT_URL": f"http://{place}",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench-secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    keys = {"ROOT_ACCESS_KEY": "bench", "ROOT_SECRET_KEY": "bench-secret"}
    with (folder / "versitygw.txt").open("wb") as words:
        command = [program, "--port", place, "posix", str(folder / "s3")]
        process = subprocess.Popen(command, env=os.environ | keys, stdout=words, stderr=words)
    try:
        with patch.dict(os.environ, told):
            yield
    finally:
        process.terminate()
        process.wait()
