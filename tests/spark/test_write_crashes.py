"""The crash matrix of the write side: driver, executors or service killed with -9 at each step.

A stream copies a topic; a proxy between Spark and the service sees each request, and kills before
it is passed on. The steps of a micro-batch are

    beginning   a task asks for its producer
    writing     a task sends records
    deciding    the driver notes which attempts count
    committing  some transactions are committed, and some not yet
    settling    all are committed, and the driver has not noted that yet
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.kafka_batches import numbered
from tests.support.processes import descendants, kill
from tests.support.proxy import Proxy, proxy_to

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = [pytest.mark.spark, pytest.mark.long]

RECORDS = 200
BATCH_RECORDS = 100


class Step(NamedTuple):
    """The request that a step begins with, and how many of its kind pass before it."""

    request: bytes
    passing: int


# Of the second micro-batch: each has two tasks, and each of these writes to two partitions.
STEPS = {
    "beginning": Step(b"POST /v1/producers", 2),
    "writing": Step(b"/batches?acks=all", 4),
    "deciding": Step(b'"attempts"', 1),
    "committing": Step(b"/transactions", 5),
    "settling": Step(rb"{\"batch\": 1}", 0),
}

COPY = """
import json, sys
from pathlib import Path
from pyspark.errors import StreamingQueryException
from pyspark_tidelog.session import local_conf, local_session

def copy(spark, url, source, target, checkpoint):
    reader = spark.readStream.format("tidelog").options(url=url, subscribe=source)
    records = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=sys.argv[2]).load()
    writer = records.drop("topic", "partition").writeStream.format("tidelog")
    writer = writer.options(url=url, topic=target, checkpointLocation=checkpoint, retries="30")
    assert writer.trigger(availableNow=True).start().awaitTermination(600)

def copy_patiently(*given):
    # Spark gives the Python process of a query ten seconds to start, on the busiest machine, too.
    while True:
        try:
            return copy(*given)
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise

if __name__ == "__main__":
    conf = {**local_conf(cores=2), **json.loads(sys.argv[3])}
    with local_session(conf, log_file=Path(sys.argv[4])) as spark:
        copy_patiently(spark, *json.loads(sys.argv[1]))
    print("done", flush=True)
"""


class Copy:
    """A source with records, a target, and a stream from the one to the other by the proxy."""

    def __init__(self, folder: Path, tidelog: ServiceProcess, topic: str, proxy: Proxy) -> None:
        self._tidelog = tidelog
        self._folder = folder
        self._source, self._target = f"{topic}-source", topic
        self.proxy = proxy
        tidelog.put_topic(self._source, partitions=2)
        for first in range(0, RECORDS, 50):
            tidelog.append(self._source, numbered(50, first=first), partition=first // 50 % 2)

    def at(self, step: Step, kill: Callable[[], None]) -> None:
        """Kill, once, where a step begins, and cut the connection of who asked."""
        left = [step.passing]

        def look(piece: bytes) -> None:
            if step.request in piece:
                left[0] -= 1
                if left[0] == -1:
                    kill()
                    raise ConnectionError("its sender, or who should answer, is gone")

        self.proxy.on_request = look

    @contextmanager
    def process(self, **conf: str) -> Iterator[subprocess.Popen[str]]:
        given = [self.proxy.url, self._source, self._target, str(self._folder / "checkpoint")]
        quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        words_file = self._folder / "words.txt"
        arguments = [json.dumps(given), str(BATCH_RECORDS), json.dumps({**quick, **conf})]
        with words_file.open("a") as words:
            running = subprocess.Popen(
                [sys.executable, "-c", COPY, *arguments, str(words_file)],
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )
        try:
            yield running
        finally:
            kill_all(running)
            running.communicate()

    def run(self) -> None:
        """Let the stream come to its end, in a process of its own."""
        self.proxy.on_request = lambda _piece: None
        with self.process() as running:
            words, _ = running.communicate(timeout=600)
        self.ensure_done(words)

    def ensure_done(self, words: str) -> None:
        assert words == "done\n", (self._folder / "words.txt").read_text()[-9000:]

    def ensure_whole(self) -> None:
        """Fail unless readers of what is committed see each record once, and nothing is open."""
        seen: list[str] = []
        for number in range(2):
            path = f"/v1/topics/{self._target}/partitions/{number}/records"
            page = self._tidelog.call("GET", f"{path}?isolation=read_committed&max_bytes=9000000")
            seen += [record["key"] for record in page["records"]]
            assert page["last_stable_offset"] == page["log_end_offset"], "a transaction is open"
        assert sorted(seen) == sorted(f"key-{number}" for number in range(RECORDS))


def kill_all(running: subprocess.Popen[str]) -> None:
    for pid in [running.pid, *descendants(running.pid)]:
        kill(pid)


@pytest.fixture
def copy(tmp_path: Path, tidelog: ServiceProcess, topic: str) -> Iterator[Copy]:
    with proxy_to(tidelog.port) as proxy:
        yield Copy(tmp_path, tidelog, topic, proxy)


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_driver_loses_and_repeats_nothing(copy: Copy, step: str) -> None:
    """With Java and all Python workers; the same query is then started again."""
    with copy.process() as running:
        copy.at(STEPS[step], lambda: kill_all(running))
        words, _ = running.communicate(timeout=600)
        assert words == "", "killed before the end"
    copy.run()
    copy.ensure_whole()


@pytest.mark.parametrize("step", ["beginning", "writing"])
def test_killed_executors_are_made_good_by_others(copy: Copy, step: str) -> None:
    """The query goes on; what the killed attempts left is aborted by the commit of the batch."""
    killed: list[int] = []

    def kill_executors() -> None:
        killed.extend(descendants(running.pid, named="CoarseGrainedExecutorBackend"))
        for pid in killed:
            kill(pid)

    with copy.process(**{"spark.master": "local-cluster[1,2,1024]"}) as running:
        copy.at(STEPS[step], kill_executors)
        words, _ = running.communicate(timeout=600)
    copy.ensure_done(words)
    assert killed
    copy.ensure_whole()


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_service_is_waited_for(tidelog: ServiceProcess, copy: Copy, step: str) -> None:
    """It dies before the request arrives, and is started again while Spark retries."""

    def restart() -> None:
        tidelog.stop(signal.SIGKILL)
        tidelog.start()

    copy.at(STEPS[step], restart)
    with copy.process() as running:
        words, _ = running.communicate(timeout=600)
    copy.ensure_done(words)
    copy.ensure_whole()
