"""A data directory becomes a cluster's, and a cluster's becomes ours: the commands of the page."""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from bench.peers.cluster import Cluster
from bench.peers.packages import jars_of
from tests.support.broker import RealBroker
from tests.support.cluster import cluster_of
from tests.support.flights import FLIGHTS, LATEST, PARTITIONS, fill, served
from tests.support.kafka_scripts import with_scripts
from tests.support.process import serving_process

pytestmark = [pytest.mark.long, pytest.mark.needs("java", "mvn")]

PAGE = Path(__file__).parents[2] / "docs" / "outgrow.md"
PROCESSES = r"^(systemctl|tidelog serve|for node in 1 2 3; do kafka-server-stop).*$"
"""Commands of the page that start or stop a process; the test does it, and ends it."""
LOOP_OF_STARTS = (
    "for node in 1 2 3; do\n  kafka-server-start.sh -daemon node-$node.properties\ndone"
)


@dataclass(frozen=True)
class Move:
    """The folder of a move: tidelog's data directory is the first node's."""

    folder: Path
    cluster: Cluster[RealBroker]
    environment: Mapping[str, str]

    @property
    def data(self) -> Path:
        return self.cluster.brokers[0].data

    def steps(self, heading: str) -> Iterator[str]:
        """Yield the numbered steps of a part of the page, with the addresses of this cluster."""
        part = PAGE.read_text().partition(f"## {heading}\n")[2]
        (commands, *_) = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
        assert heading != "The move" or LOOP_OF_STARTS in commands
        commands = commands.replace(LOOP_OF_STARTS, "")
        commands = re.sub(PROCESSES, "", commands, flags=re.MULTILINE)
        for written, meant in (
            ("/var/lib/tidelog", str(self.data)),
            ("/var/lib/kafka-", f"{self.folder}/kafka-"),
            ("node-$node.properties", f"{self.folder}/kafka-$node.properties"),
            ("localhost:9092", self.cluster.bootstrap),
        ):
            commands = commands.replace(written, meant)
        yield from re.split(r"^# \d\. ", commands, flags=re.MULTILINE)[1:]

    def run(self, step: str) -> str:
        """Run a step in a shell; its first line is the comment."""
        done = subprocess.run(
            ["sh", "-eu", "-c", f"# {step}"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def wait_until_replicated(self, step: str) -> None:
        """Run the step that prints the partitions that lack a replica until it prints nothing."""
        while "Topic:" in self.run(step):
            pass  # a JVM takes long enough to start


@pytest.fixture
def move(tmp_path: Path) -> Move:
    return Move(
        tmp_path, cluster_of(tmp_path), with_scripts(tmp_path / "scripts", jars_of("kafka"))
    )


def described(broker: RealBroker) -> dict[str, str]:
    """Return the topic ids by name as Kafka's tool prints them."""
    told = broker.tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.address, "--describe"
    )
    return dict(re.findall(r"^Topic: (\S+)\tTopicId: (\S+)", told, re.MULTILINE))


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_cluster_adopts_a_directory_and_gives_it_back(move: Move, *, is_clean: bool) -> None:
    """Ids, offsets, records and groups are the same at each node, and at home again."""
    with serving_process(move.data) as process, httpx.Client(base_url=process.url) as client:
        fill(client, int(time.time() * 1000))
        group = {"offset": 1_234}
        client.put(f"/v1/groups/readers/offsets/{FLIGHTS}/1", json=group).raise_for_status()
        topics = client.get("/v1/topics").json()["topics"]
        uncommitted = served(client, FLIGHTS, PARTITIONS)
        committed = served(client, FLIGHTS, PARTITIONS, "read_committed")
        latest = served(client, LATEST, 1)
        process.stop(signal.SIGTERM if is_clean else signal.SIGKILL)
        process.exit_code()

    stop, form, export, start, _ = move.steps("The move")
    for step in (stop, form, export):
        move.run(step)
    with move.cluster as cluster:
        move.wait_until_replicated(start)
        first, second, _ = cluster.brokers
        ids = described(first)
        assert {topic["topic"]: topic["topic_id"] for topic in topics}.items() <= ids.items()
        first.kill()
        cluster.wait_for(2)
        assert second.records(FLIGHTS) == uncommitted
        assert second.records(FLIGHTS, isolation="read_committed") == committed
        assert second.records(LATEST) == latest
        told = second.tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", second.address, "--describe", "--group", "readers"),
        )
        assert re.search(rf"readers\s+{FLIGHTS}\s+1\s+1234\s", told)
        second.produce_lines(FLIGHTS, [(f"after-{n}", f"the cluster's {n}") for n in range(200)])
        first.start()
        cluster.wait_for(3)
        _, stop, copy, _ = move.steps("The way back")
        move.wait_until_replicated(stop)
        everything = second.records(FLIGHTS)
    assert len(everything) == len(uncommitted) + 200

    move.run(copy)
    back = move.folder / "back"
    assert not [*back.rglob("tidelog-*")]
    with serving_process(back) as process, httpx.Client(base_url=process.url) as client:
        again = client.get("/v1/topics").json()["topics"]
        assert {topic["topic"]: topic["topic_id"] for topic in again} == {
            topic["topic"]: topic["topic_id"] for topic in topics
        }
        assert served(client, FLIGHTS, PARTITIONS) == everything
        assert served(client, LATEST, 1) == latest
        offsets = client.get("/v1/groups/readers/offsets").json()["offsets"]
        assert [(one["partition"], one["offset"]) for one in offsets] == [(1, 1_234)]
    shutil.rmtree(back)
