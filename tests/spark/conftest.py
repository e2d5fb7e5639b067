"""A real service in a process of its own, and one local Spark session for all tests here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pyspark.sql import SparkSession

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.session import local_conf, local_session
from tests.support.kafka_batches import SentRecord, encode

RAW_BATCHES = "application/vnd.kafka.recordbatch.v2"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests of this folder to the front.

    Of tests that run in parallel the first part goes to one process: Java and the service of these
    are then started once, and not again where the second half of them happens to run.
    """
    here = Path(__file__).parent
    items.sort(key=lambda item: not item.path.is_relative_to(here))


class ServiceProcess:
    """`tidelog serve` on a port of the system's choice, which it keeps when it is started again."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        arguments = ["serve", "--data-dir", str(self.data), "--port", str(self.port)]
        words = self.data.with_suffix(".log")
        with words.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        greeting = self._process.stdout.readline()  # printed once it listens
        assert greeting, words.read_text()
        self.port = int(greeting.rpartition(":")[2])
        with ServiceClient(Endpoint(self.url, retries=100)) as client:
            client.get("/readyz")  # patient with a service that still recovers

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.communicate(timeout=60)
            self._process = None

    def put_topic(self, topic: str, partitions: int = 1) -> None:
        # Record times of the tests lie in the past, and retention goes by them.
        body = {"partitions": partitions, "config": {"retention.ms": "-1"}}
        self.call("PUT", f"/v1/topics/{topic}", json.dumps(body).encode())

    def append(
        self, topic: str, records: list[SentRecord], *, partition: int = 0, codec: int = 0
    ) -> None:
        path = f"/v1/topics/{topic}/partitions/{partition}/batches"
        self.call("POST", path, encode(records, codec=codec), {"Content-Type": RAW_BATCHES})

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> Any:
        request = Request(self.url + path, data=body, headers=dict(headers), method=method)
        if body is not None and not headers:
            request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"null")


ServeDirectory = Callable[[Path], AbstractContextManager[ServiceProcess]]


@pytest.fixture(scope="session")
def serve_directory() -> ServeDirectory:
    """Starts a service on a data directory, for the length of a block."""

    @contextmanager
    def serve(data: Path) -> Iterator[ServiceProcess]:
        process = ServiceProcess(data)
        try:
            process.start()
            yield process
        finally:
            process.stop()

    return serve


@pytest.fixture(scope="session")
def tidelog(
    tmp_path_factory: pytest.TempPathFactory, serve_directory: ServeDirectory
) -> Iterator[ServiceProcess]:
    with serve_directory(tmp_path_factory.mktemp("data")) as process:
        yield process


@pytest.fixture(scope="session")
def spark_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all that Spark says: its log, and the events for its history server."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_words: Path) -> Iterator[SparkSession]:
    # Many small queries: compiling them well would take longer than running them.
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{spark_words}",
        "spark.eventLog.compress": "false",
    }
    conf = {**local_conf(cores=2), **quick, **events}
    with local_session(conf, log_file=spark_words / "spark.log") as session:
        yield session


@pytest.fixture
def topic(tidelog: ServiceProcess, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions for one test, named after it."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    tidelog.put_topic(name, partitions=2)
    return name
