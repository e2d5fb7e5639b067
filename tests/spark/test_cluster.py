"""Where it outgrows a machine: a standalone cluster and Spark Connect, with the project's wheel.

Master and workers are processes on loopback. The wheel is built and unpacked as a user would
install it, before everything else that Python finds; nothing is registered by hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from tests.support.kafka_batches import numbered
from tests.support.processes import descendants, kill
from tests.support.proxy import proxy_to

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = [pytest.mark.spark, pytest.mark.long]

SPARK_HOME = Path(pyspark.__file__).parent
SPARK_SOURCE = Path(__file__).parents[2] / "distributions" / "pyspark-tidelog"

# What a user submits: it copies a topic by batch and by stream, and tells where it found the wheel.
JOB = """
import json, sys
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

url, executor_url, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
sides = {"url": url, "executorUrl": executor_url}
reading = {**sides, "subscribe": source, "startingOffsets": "earliest"}
writing = {**sides, "topic": target}
stream = spark.readStream.format("tidelog").options(**reading, maxOffsetsPerTrigger="60").load()
copy = stream.drop("topic", "partition").writeStream.format("tidelog")
copy = copy.options(**writing, checkpointLocation=checkpoint).trigger(availableNow=True)
while True:
    try:
        assert copy.start().awaitTermination(600)
        break
    except StreamingQueryException as error:
        # Spark gives the Python process of a query ten seconds to start, on the busiest machine.
        if "failed to connect back" not in str(error):
            raise
records = spark.read.format("tidelog").options(**reading, minPartitions="8").load()
records.drop("topic", "partition").write.format("tidelog").mode("append").options(**writing).save()
result = {"rows": records.count()}
if hasattr(spark, "_jsc"):
    place = lambda _: __import__("pyspark_tidelog").__file__
    result["places"] = spark.sparkContext.parallelize(range(8), 8).map(place).distinct().collect()
print(json.dumps(result))
"""

# Two micro-batches into a table, and what the verifier says of it.
INGEST = """
import json, os, sys
from pyspark.sql import SparkSession
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.lake.lake import Lake

url, topic, to, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
job = IngestJob(url, topic, to, checkpoint, schema="n BIGINT", max_offsets_per_trigger=100)
report = run(job, spark=spark)
place = lambda _: __import__("pyspark_tidelog").__file__
places = spark.sparkContext.parallelize(range(8), 8).map(place).distinct().collect()
verdict = Lake(to).verify({"url": url}, checkpoint=checkpoint)
print(json.dumps([report.rows, report.batches, verdict.is_same, verdict.rows, places]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the wheel is installed: what a cluster's machines have of it."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(SPARK_SOURCE),
    ]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    install = ["install", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run([*pip, *install], check=True)
    return site


@contextmanager
def started(
    *command: str, env: Mapping[str, str], words: Path, until: str
) -> Iterator[re.Match[str]]:
    """Run a program until the block ends; wait for what it says when it is ready."""
    running = subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    said = []
    try:
        for line in running.stdout:
            said.append(line)
            if found := re.search(until, line):
                break
        else:
            raise AssertionError("".join(said[-50:]))
        # A full pipe would stop it: what else it says goes to a file.
        with words.open("w") as log, ThreadPoolExecutor(1) as pool:
            rest = pool.submit(log.writelines, running.stdout)
            try:
                yield found
            finally:
                end(running)
                rest.result()
    finally:
        end(running)
        running.communicate()


def end(running: subprocess.Popen[str]) -> None:
    for pid in [running.pid, *descendants(running.pid)]:
        kill(pid)


@pytest.fixture
def environment(installed: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(installed),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture
def master(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """A standalone cluster: a master and two workers of one core each."""
    node = str(Path(__file__).parents[2] / "deploy" / "spark-node.sh")
    ports = ["--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        found = stack.enter_context(
            started(
                *(node, "master.Master", "--host", "127.0.0.1", *ports),
                env=environment,
                words=tmp_path / "master.txt",
                until=r"Starting Spark master at (spark://127\.0\.0\.1:\d+)",
            )
        )
        for number in range(2):
            size = ["--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / "work")]
            stack.enter_context(
                started(
                    *(node, "worker.Worker", "--host", "127.0.0.1", *ports),
                    *(*size, found[1]),
                    env=environment,
                    words=tmp_path / f"worker-{number}.txt",
                    until="Successfully registered with master",
                )
            )
        yield found[1]


def submitted(
    master: str, folder: Path, environment: Mapping[str, str], program: str, *arguments: str
) -> Any:
    """Submit a program with its arguments and a checkpoint; return what it prints last, as JSON."""
    (folder / "job.py").write_text(program)
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    done = subprocess.run(
        [
            str(SPARK_HOME / "bin" / "spark-submit"),
            *("--master", master),
            *(part for item in conf.items() for part in ("--conf", "=".join(item))),
            str(folder / "job.py"),
            *arguments,
            str(folder / "checkpoint"),
        ],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


def fill(tidelog: ServiceProcess, topic: str) -> str:
    source = f"{topic}-source"
    tidelog.put_topic(source, partitions=2)
    for first in range(0, 200, 10):
        tidelog.append(source, numbered(10, first=first), partition=first // 10 % 2)
    return source


def keys_in(tidelog: ServiceProcess, topic: str) -> list[str]:
    keys: list[str] = []
    for number in range(2):
        path = f"/v1/topics/{topic}/partitions/{number}/records?isolation=read_committed"
        keys += [record["key"] for record in tidelog.call("GET", path)["records"]]
    return sorted(keys)


def test_a_cluster_needs_one_wheel_and_may_reach_the_service_by_another_address(
    tidelog: ServiceProcess,
    topic: str,
    tmp_path: Path,
    installed: Path,
    environment: dict[str, str],
    master: str,
) -> None:
    """Submitted to two workers: all records by batch and by stream, each once for each."""
    source = fill(tidelog, topic)
    with proxy_to(tidelog.port) as by_executors:
        urls = (tidelog.url, by_executors.url)
        result = submitted(master, tmp_path, environment, JOB, *urls, source, topic)
    assert result == {"rows": 200, "places": [str(installed / "pyspark_tidelog" / "__init__.py")]}
    twice = sorted([f"key-{number}" for number in range(200)] * 2)
    assert keys_in(tidelog, topic) == twice
    asked = b"".join(by_executors.requests)
    assert b"/batches?offset=" in asked, "executors read by their own address"
    assert b"/batches?acks=all" in asked, "and write"
    assert b"/splits" not in asked, "the driver plans"
    assert b"/transactions" not in asked, "and commits by its own"


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_cluster_fills_a_table_with_the_wheel_alone(
    tidelog: ServiceProcess,
    topic: str,
    tmp_path: Path,
    installed: Path,
    environment: dict[str, str],
    master: str,
    kind: str,
) -> None:
    """Executors have the wheel and the libraries of its extras, and nothing of the repository."""
    source = f"{topic}-source"
    tidelog.put_topic(source, partitions=2)
    for first in range(0, 200, 50):
        records = [{"value": {"n": first + number}} for number in range(50)]
        tidelog.call(
            "POST",
            f"/v1/topics/{source}/partitions/{first // 50 % 2}/records",
            json.dumps({"records": records}).encode(),
        )
    to = f"delta:{tmp_path / 'lake'}" if kind == "delta" else "iceberg:kept.air.flights"
    catalog = {
        "PYICEBERG_CATALOG__KEPT__URI": f"sqlite:///{tmp_path / 'catalog.db'}",
        "PYICEBERG_CATALOG__KEPT__WAREHOUSE": f"file://{tmp_path / 'warehouse'}",
    }
    arguments = (tidelog.url, source, to)
    result = submitted(master, tmp_path, environment | catalog, INGEST, *arguments)
    rows, batches, is_same, verified, places = result
    assert (rows, batches, is_same, verified) == (200, 2, True, 200)
    assert places == [str(installed / "pyspark_tidelog" / "__init__.py")]


def test_a_client_of_spark_connect_needs_nothing_of_ours(
    tidelog: ServiceProcess, topic: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """A server of Spark Connect has the wheel; the client asks for the format by its name."""
    source = fill(tidelog, topic)
    (tmp_path / "job.py").write_text(JOB)
    confs = {
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    with started(
        str(SPARK_HOME / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--name", "connect"),
        *(part for item in confs.items() for part in ("--conf", "=".join(item))),
        env=environment,
        words=tmp_path / "server.txt",
        until=r"Spark Connect server started at: .*?:(\d+)",
    ) as found:
        arguments = [tidelog.url, tidelog.url, source, topic, str(tmp_path / "checkpoint")]
        client = subprocess.run(
            [sys.executable, str(tmp_path / "job.py"), *arguments],
            env={**os.environ, "SPARK_REMOTE": f"sc://127.0.0.1:{found[1]}"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert client.returncode == 0, client.stderr[-5000:]
    assert json.loads(client.stdout.splitlines()[-1]) == {"rows": 200}
    assert keys_in(tidelog, topic) == sorted([f"key-{number}" for number in range(200)] * 2)
