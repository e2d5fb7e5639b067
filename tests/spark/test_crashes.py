"""The crash matrix: driver, executor or service killed with -9 at each step of a micro-batch.

Each cell stops the world at its step, kills, lets things go on as they would, and then asks the
verifier: every offset once, the same contents. The steps are

    planning    before the next micro-batch is planned
    reading     the executors fetch its records
    written     its files are written, and not yet part of the lake
    published   it is part of the lake, and Spark has not noted that yet
"""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from pyspark_tidelog.ingest import run
from pyspark_tidelog.job import IngestJob
from pyspark_tidelog.lake.delta import DeltaSink
from pyspark_tidelog.lake.folders import FolderSink
from pyspark_tidelog.lake.opening import Lake
from pyspark_tidelog.lake.verifying import Verdict
from tests.support.kafka_batches import numbered
from tests.support.processes import descendants, kill
from tests.support.watching import Watched, watching

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = pytest.mark.spark

KINDS = ("parquet", "delta", "json")
STEPS = ("planning", "reading", "written", "published")
RECORDS = 400
BATCH_RECORDS = 100

# The job in a process of its own. At the two steps that no request tells of it says so on standard
# output and waits for a line.
PROGRAM = """
import dataclasses, json, sys
from pyspark_tidelog.ingest import run
from pyspark_tidelog.job import IngestJob
from pyspark_tidelog.lake.delta import DeltaSink
from pyspark_tidelog.lake.folders import FolderSink
from pyspark_tidelog.session import local_conf, local_session

def tell(name, **more):
    print(json.dumps({"at": name, **more}), flush=True)

def stop_at(kind):
    publish = kind.publish
    def watched(self, batch_id):
        tell("written", batch_id=batch_id)
        sys.stdin.readline()
        publish(self, batch_id)
        tell("published", batch_id=batch_id)
        sys.stdin.readline()
    kind.publish = watched

stop_at(FolderSink)
stop_at(DeltaSink)
job = IngestJob(**json.loads(sys.argv[1]))
with local_session({**local_conf(cores=2), **json.loads(sys.argv[2])}) as spark:
    report = run(job, lambda event: tell("progress"), spark=spark)
tell("done", rows=report.rows)
"""


@dataclasses.dataclass
class Cell:
    """A topic, a lake of one kind, and the job between them, which talks through the watched."""

    folder: Path
    kind: str
    topic: str
    service: ServiceProcess
    watched: Watched

    def job(self) -> IngestJob:
        return IngestJob(
            self.watched.url,
            self.topic,
            f"{self.kind}:{self.folder / 'lake'}",
            str(self.folder / "checkpoint"),
            max_offsets_per_trigger=BATCH_RECORDS,
        )

    def verdict(self) -> Verdict:
        """Compare what is there; what the checkpoint says is done has to be."""
        lake = Lake(str(self.folder / "lake"))
        has_begun = (self.folder / "checkpoint" / "commits").exists()
        return lake.verify(
            {"url": self.service.url},
            checkpoint=str(self.folder / "checkpoint") if has_begun else None,
        )

    def when(self, step: str, reached: Callable[[], None]) -> None:
        """Call once, where the second micro-batch is planned or read."""
        # The job looks once by itself; of a query the first look fixes the end, the second the
        # beginning, the third plans the first micro-batch.
        if step == "planning":
            self.at_request("/offsets", 5, reached)
        elif step == "reading":
            self.at_request("offset=50&", 1, reached)

    def at_request(self, part: str, number: int, reached: Callable[[], None]) -> None:
        """Call at the request of this number that has `part` in its path, whatever else is on."""
        earlier = self.watched.on_request
        left = [number]

        def look(path: str) -> None:
            earlier(path)
            if part in path:
                left[0] -= 1
                if left[0] == 0:
                    reached()

        self.watched.on_request = look


@pytest.fixture(params=KINDS)
def cell(
    request: pytest.FixtureRequest, tmp_path: Path, tidelog: ServiceProcess, topic: str
) -> Iterator[Cell]:
    with watching(tidelog.url) as watched:
        yield filled(Cell(tmp_path, request.param, topic, tidelog, watched))


@pytest.fixture
def parquet_cell(tmp_path: Path, tidelog: ServiceProcess, topic: str) -> Iterator[Cell]:
    with watching(tidelog.url) as watched:
        yield filled(Cell(tmp_path, "parquet", topic, tidelog, watched))


def filled(cell: Cell) -> Cell:
    for first in range(0, RECORDS // 2, 25):
        for partition in range(2):
            cell.service.append(cell.topic, numbered(25, first=first), partition=partition)
    return cell


class JobProcess:
    """The job's process, everything it started, and what it says."""

    def __init__(self, cell: Cell, conf: dict[str, str], words: Path) -> None:
        self._words = words
        with words.open("ab") as errors:
            self.running = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, json.dumps(fields(cell.job())), json.dumps(conf)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def next_stop(self) -> dict[str, object] | None:
        """Return where the job stands now, None where it is gone."""
        assert self.running.stdout is not None
        line = self.running.stdout.readline()
        return json.loads(line) if line else None

    def go_on(self) -> None:
        assert self.running.stdin is not None
        self.running.stdin.write("\n")
        self.running.stdin.flush()

    def kill(self) -> None:
        """End driver, Java and Python workers as a machine that loses its power does."""
        for pid in [self.running.pid, *descendants(self.running.pid)]:
            kill(pid)

    def kill_executors(self) -> int:
        """End the executors' processes, and return how many there were."""
        executors = descendants(self.running.pid, named="CoarseGrainedExecutorBackend")
        for pid in executors:
            kill(pid)
        return len(executors)


def fields(job: IngestJob) -> dict[str, object]:
    return {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}


@contextmanager
def job_process(cell: Cell, **conf: str) -> Iterator[JobProcess]:
    process = JobProcess(cell, conf, cell.folder / "job.txt")
    try:
        yield process
    finally:
        process.kill()
        process.running.communicate()


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_driver_loses_and_repeats_nothing(
    spark: SparkSession, cell: Cell, step: str
) -> None:
    """Neither in what it leaves behind nor after the next run."""
    with job_process(cell) as process:
        cell.when(step, process.kill)
        while (stop := process.next_stop()) is not None:
            if stop["at"] == step and stop["batch_id"] == 1:
                process.kill()
            elif stop["at"] in ("written", "published"):
                process.go_on()
    cell.watched.on_request = lambda _path: None
    left = cell.verdict()
    assert left.is_same
    assert left.rows == (2 if step == "published" else 1) * BATCH_RECORDS
    run(cell.job(), spark=spark)
    assert cell.verdict() == Verdict(rows=RECORDS)


@pytest.mark.long
def test_killed_executors_are_made_good_by_others(cell: Cell) -> None:
    """At each step of one micro-batch after the other; the job itself goes on."""
    killed: list[int] = []
    with job_process(cell, **{"spark.master": "local-cluster[1,2,1024]"}) as process:
        cell.when("reading", lambda: killed.append(process.kill_executors()))
        while (stop := process.next_stop()) is not None and stop["at"] != "done":
            if stop["at"] == "progress":
                continue
            if (stop["at"], stop["batch_id"]) == ("published", 1):
                cell.at_request("/offsets", 1, lambda: killed.append(process.kill_executors()))
            if (stop["at"], stop["batch_id"]) in (("written", 2), ("published", 3)):
                killed.append(process.kill_executors())
            process.go_on()
    assert stop == {"at": "done", "rows": RECORDS}
    assert len(killed) == 4
    assert all(killed)
    assert cell.verdict() == Verdict(rows=RECORDS)


def kill_the_service(cell: Cell, *, torn: bytes = b"") -> None:
    """Kill it and start it again, with half a batch at the end of a log."""
    cell.service.stop(signal.SIGKILL)
    if torn:
        segment = max(cell.service.data.rglob(f"{cell.topic}-0/*.log"))
        with segment.open("ab") as log:
            log.write(torn)
    cell.service.start()


def endure_the_service(
    spark: SparkSession, cell: Cell, patched: pytest.MonkeyPatch, *, torn: bytes = b""
) -> None:
    """Let a job run whose service is killed at each step of a micro-batch, and judge the lake."""
    killed: list[str] = []

    def kill_at(step: str) -> None:
        killed.append(step)
        kill_the_service(cell, torn=torn)
        if step in ("planning", "reading"):
            raise ConnectionError("the service is gone before it could answer")

    def stop_at(kind: type[FolderSink | DeltaSink]) -> None:
        publish = kind.publish

        def watched(self: object, batch_id: int) -> None:
            if batch_id == 2:
                kill_at("written")
            publish(self, batch_id)  # type: ignore[arg-type] # whichever it is
            if batch_id == 3:
                kill_at("published")

        patched.setattr(kind, "publish", watched)

    stop_at(FolderSink)
    stop_at(DeltaSink)
    for step in ("planning", "reading"):
        cell.when(step, partial(kill_at, step))
    report = run(cell.job(), spark=spark)
    assert sorted(killed) == sorted(STEPS)
    assert report.rows == RECORDS
    assert cell.verdict() == Verdict(rows=RECORDS)


@pytest.mark.long
def test_a_service_killed_at_every_step_is_waited_for(
    spark: SparkSession, parquet_cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job, four kills, and nobody has to start anything again."""
    endure_the_service(spark, parquet_cell, monkeypatch)


@pytest.mark.long
def test_a_service_that_cuts_a_torn_tail_has_cut_nothing_that_was_read(
    spark: SparkSession, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every step, for every sink: half a batch lies at the end of a log when it starts."""
    whole = max(cell.service.data.rglob(f"{cell.topic}-0/*.log")).read_bytes()
    endure_the_service(spark, cell, monkeypatch, torn=whole[:100])
