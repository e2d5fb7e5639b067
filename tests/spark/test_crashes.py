"""The crash matrix: executors, service and driver killed with -9 at each step of a micro-batch.

One driver runs a job for each step, and each job stops at its own step of a micro-batch. When all
of them stand there, one kill hits every step at once; things then go on as they would, up to the
same steps of the next micro-batch and the next kill. DuckDB and Polars judge every table in between
(every offset once, the right sums), and so does the verifier. The steps are

    planning    before the next micro-batch is planned
    reading     the executors fetch its records
    written     its files are written, and not yet part of the lake
    published   it is part of the lake, and Spark has not noted that yet
"""

from __future__ import annotations

import dataclasses
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.lake.verifier import Verdict
from tests.support.kafka_batches import numbered
from tests.support.lake_readers import Counted, counted
from tests.support.object_stores import ObjectStore, server_of
from tests.support.processes import descendants, kill
from tests.support.watching import Watched, watching

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

# Eight runs and two of Java: a minute on two cores, and several where twenty others wait for these.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore:Iceberg scan planning"),  # of a package that is not needed
]

IN_DRIVER = ("published", "written")  # the driver says itself that it stands there
IN_REQUEST = ("planning", "reading")  # a request tells
STEPS = (*IN_DRIVER, *IN_REQUEST)
BATCH_RECORDS = 100
BATCHES = 4  # one before the first kill, and one a kill
EXECUTORS_KILLED, SERVICE_KILLED, DRIVER_KILLED = 1, 2, 3  # while this one is at its step

# Eight slots, because a job that stands still keeps some; four attempts of each task. In local mode
# the executor is a thread of the driver's Java, and what can be killed of it are Python workers.
LOCAL, CLUSTER = "local[8,4]", "local-cluster[1,8,1024]"
EXECUTORS = {LOCAL: "pyspark.worker", CLUSTER: "CoarseGrainedExecutorBackend"}

# A driver. Each line it is given is a job to start, or the name of one to go on; a job is named
# after the step at which it stops, and that is the name of the folder its lake lies in.
DRIVER = """
import json, queue, sys, threading
from pathlib import Path
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.tables.delta import DeltaTable
from pyspark_tidelog.tables.folders import FolderTable
from pyspark_tidelog.tables.iceberg import IcebergTable
from pyspark_tidelog.session import local_conf, local_session

orders = {"published": queue.Queue(), "written": queue.Queue()}

def stop_at(step, place, batch_id):
    if step in place.replace(".", "/").split("/")[-2:] and batch_id > 0:
        sys.stdout.write(json.dumps([step, batch_id]) + "\\n")
        sys.stdout.flush()
        orders[step].get()

def stopping(kind):
    publish = kind.publish
    def stop_and_publish(self, staged):
        stop_at("written", self.target.place, staged.batch.number)
        publish(self, staged)
        stop_at("published", self.target.place, staged.batch.number)
    kind.publish = stop_and_publish

stopping(FolderTable)
stopping(DeltaTable)
stopping(IcebergTable)
conf = {
    **local_conf(cores=2),
    "spark.master": sys.argv[2],
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
with local_session(conf, log_file=Path(sys.argv[1])) as spark:
    for line in sys.stdin:
        order = json.loads(line)
        if isinstance(order, str):
            orders[order].put(None)
        else:
            threading.Thread(target=run, args=[IngestJob(**order)], kwargs={"spark": spark}).start()
"""


class Cell:
    """One step: the job that stops there, its lake, and the stand between it and the service."""

    def __init__(self, step: str, job: IngestJob, watched: Watched, column: Column) -> None:
        self.step = step
        self.job = job
        self.is_to_be_cut = False
        """Whether the request at which the job stands gets no answer."""
        self.go_on = threading.Semaphore(0)
        self._column = column
        self._checkpoint = Path(job.checkpoint)
        self._seen: set[int] = set()
        watched.on_request = self._look

    def _look(self, path: str) -> None:
        """Stand still at the request in which a micro-batch is planned, or first read."""
        batch_id = self._planned(path) if self.step == "planning" else self._read(path)
        if self.step not in IN_REQUEST or batch_id in self._seen or not 0 < batch_id < BATCHES:
            return
        self._seen.add(batch_id)
        self._column.reached.put((self.step, batch_id))
        self.go_on.acquire()
        if self.is_to_be_cut:
            raise ConnectionError("the service is gone before it could answer")

    def _planned(self, path: str) -> int:
        """Return the next micro-batch that reads the ends of the log, or 0."""
        planned = list((self._checkpoint / "offsets").glob("[0-9]*"))
        return len(planned) if "/offsets" in path else 0

    def _read(self, path: str) -> int:
        """Return which micro-batch a request for records is of, or 0."""
        if path.endswith("&max_bytes=1"):  # the job asks how old the first one is
            return 0
        for batch_id in range(BATCHES):
            if f"/batches?offset={batch_id * BATCH_RECORDS // 2}&" in path:
                return batch_id
        return 0

    def counted(self) -> dict[str, Counted]:
        """Count what is there, with engines that know nothing of this project."""
        return counted(self.job.to, self._column.environment)

    def verdict(self) -> Verdict:
        """Compare what is there; what the checkpoint says is done has to be."""
        lake = Lake(self.job.to)
        return lake.verify({"url": self._column.service.url}, checkpoint=self.job.checkpoint)


class Column:
    """A topic, a job for each step that brings it into a lake of one kind, and their driver."""

    def __init__(self, folder: Path, service: ServiceProcess, topic: str, master: str) -> None:
        self.service = service
        self.reached: queue.SimpleQueue[tuple[str, int] | None] = queue.SimpleQueue()
        """Which job has come to its step, and with which micro-batch; None: the driver is gone."""
        self.environment: Mapping[str, str] = {}
        """What libraries read to find the bucket."""
        self.cells: dict[str, Cell] = {}
        self._topic = topic
        self._master = master
        self._words = folder / "driver.txt"
        with self._words.open("ab") as words:
            self._driver = subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(self._words), master],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def start(self, cell: Cell) -> None:
        """Start a job and let it come to its step."""
        self.cells[cell.step] = cell
        fields = dataclasses.fields(cell.job)
        self._order({field.name: getattr(cell.job, field.name) for field in fields})
        self.await_steps({cell.step}, EXECUTORS_KILLED)

    def await_steps(self, steps: set[str], batch_id: int) -> None:
        """Wait until the jobs stand at their steps of a micro-batch."""
        while steps:
            found = self.reached.get(timeout=600)
            assert found is not None, self._words.read_text()[-9000:]
            step, number = found
            assert number == batch_id
            steps.remove(step)

    def go_on(self) -> None:
        """Let all jobs go on from where they stand."""
        for cell in self.cells.values():
            if cell.step in IN_DRIVER:
                self._order(cell.step)
            else:
                cell.go_on.release()

    def kill_executors(self) -> int:
        """End the executors' processes, and return how many there were."""
        executors = descendants(self._driver.pid, named=EXECUTORS[self._master])
        for pid in executors:
            kill(pid)
        return len(executors)

    def kill_service(self) -> None:
        """Kill it, with half a batch at the end of each log, as if it had been writing that."""
        self.service.stop(signal.SIGKILL)
        for segment in self.service.data.rglob(f"{self._topic}-?/*.log"):
            with segment.open("r+b") as log:
                torn = log.read(100)
                log.seek(0, 2)
                log.write(torn)

    def kill_driver(self) -> None:
        """End driver, Java, executors and workers as a machine that loses its power does."""
        if self._driver.poll() is None:
            for pid in [self._driver.pid, *descendants(self._driver.pid)]:
                kill(pid)
        self._driver.wait()
        self._listener.join()
        for stream in (self._driver.stdin, self._driver.stdout):
            assert stream is not None
            stream.close()
        for cell in self.cells.values():
            cell.go_on.release()

    def _order(self, order: object) -> None:
        assert self._driver.stdin is not None
        self._driver.stdin.write(json.dumps(order) + "\n")
        self._driver.stdin.flush()

    def _listen(self) -> None:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            step, batch_id = json.loads(line)
            self.reached.put((step, batch_id))
        self.reached.put(None)


@contextmanager
def column_of(
    kind: str, master: str, folder: Path, service: ServiceProcess, topic: str
) -> Iterator[Column]:
    for first in range(0, BATCHES * BATCH_RECORDS // 2, 25):
        for partition in range(2):
            service.append(topic, numbered(25, first=first), partition=partition)
    targets = {
        "delta-s3": "delta:s3://crashes/{step}/lake",
        "iceberg": "iceberg:crashes.{step}.lake",
        **{each: f"{each}:{folder}/{{step}}/lake" for each in ("parquet", "delta", "json")},
    }
    with ExitStack() as stack:
        column = Column(folder, service, topic, master)
        stack.callback(column.kill_driver)
        for step in STEPS:
            watched = stack.enter_context(watching(service.url))
            place = folder / step
            job = IngestJob(
                watched.url,
                topic,
                targets[kind].format(step=step),
                str(place / "checkpoint"),
                max_offsets_per_trigger=BATCH_RECORDS,
                # A job that stands still for long is not to lose its patience.
                options=(("timeout", "600"), ("retries", "100")),
            )
            column.start(Cell(step, job, watched, column))
        yield column


@pytest.fixture
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectStore | None]:
    """A bucket and a catalog that driver, executors and judges find in their environment."""
    if request.param is None:
        yield None
        return
    with server_of(request.param, tmp_path) as endpoint:
        made = ObjectStore(endpoint, "crashes").make_bucket()
        catalog = {
            "PYICEBERG_CATALOG__CRASHES__URI": f"sqlite:///{tmp_path}/catalog.db",
            "PYICEBERG_CATALOG__CRASHES__WAREHOUSE": "s3://crashes/warehouse",
        }
        for name, value in {**made.environment, **catalog}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read at the import
        yield made


IN_BUCKETS = [
    pytest.param(
        *(kind, CLUSTER, server),
        marks=[pytest.mark.long, *([] if server == "moto" else [pytest.mark.needs(server)])],
        id=f"{kind}-{server}",
    )
    for kind in ("delta-s3", "iceberg")
    for server in ("moto", "versitygw")
]


@pytest.mark.parametrize(
    ("kind", "master", "store"),
    [
        pytest.param("parquet", LOCAL, None, marks=pytest.mark.long),
        *(
            pytest.param(kind, CLUSTER, None, marks=pytest.mark.long)
            for kind in ("parquet", "delta", "json")
        ),
        *IN_BUCKETS,
    ],
    indirect=["store"],
)
def test_whoever_is_killed_at_whatever_step_nothing_is_lost_or_repeated(
    spark: SparkSession,
    tidelog: ServiceProcess,
    topic: str,
    tmp_path: Path,
    *,
    kind: str,
    master: str,
    store: ObjectStore | None,
) -> None:
    """Executors, then a service with a torn tail, then the driver; and the next run is whole."""
    environment = {} if store is None else store.environment
    with column_of(kind, master, tmp_path, tidelog, topic) as column:
        column.environment = environment
        assert column.kill_executors() > 0
        column.go_on()
        column.await_steps(set(STEPS), SERVICE_KILLED)
        judge(column, SERVICE_KILLED)
        column.kill_service()
        for cell in column.cells.values():
            cell.is_to_be_cut = True
        column.go_on()
        tidelog.start()
        column.await_steps(set(STEPS), DRIVER_KILLED)
        judge(column, DRIVER_KILLED)
        column.kill_driver()
    judge(column, DRIVER_KILLED)
    for cell in column.cells.values():
        run(dataclasses.replace(cell.job, server=tidelog.url), spark=spark)
        judge_one(cell, BATCHES)


def judge(column: Column, batch_id: int) -> None:
    """Fail unless each lake holds the micro-batches up to this one, which may be in it."""
    for cell in column.cells.values():
        judge_one(cell, batch_id + (cell.step == "published"))


def judge_one(cell: Cell, batches: int) -> None:
    """Fail unless DuckDB, Polars and the verifier find so many micro-batches, each record once."""
    offsets = range(batches * BATCH_RECORDS // 2)
    expected = Counted.of(offsets, offsets)
    assert cell.counted() == {"duckdb": expected, "polars": expected}, cell.step
    verdict = cell.verdict()
    assert (verdict.rows, verdict.is_same) == (expected.rows, True), cell.step
