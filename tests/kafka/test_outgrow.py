"""A data directory becomes a cluster's, and a cluster's becomes ours: the commands of the page."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from bench.peers.cluster import Cluster
from bench.peers.packages import jars_of
from tests.support.broker import BrokerRecord, RealBroker
from tests.support.cluster import cluster_of
from tests.support.flights import FLIGHTS, LATEST, PARTITIONS, SEGMENT_BYTES, fill, served
from tests.support.kafka_scripts import with_scripts
from tests.support.replica_set import PATIENCE_S, Replica

pytestmark = [pytest.mark.long, pytest.mark.needs("java", "mvn", "jq")]

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

    def steps(self, heading: str, port: int) -> Iterator[str]:
        """Yield the numbered steps of a part of the page, with the addresses of this test."""
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
            ("localhost:8080", f"127.0.0.1:{port}"),
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


@dataclass
class Clients:
    """What clients hold while the service moves: an address, a sequence, a link, a checkpoint."""

    url: str
    folder: Path
    page_link: str = ""
    producer_id: int = -1
    sent: dict[int, int] = field(default_factory=dict)
    """The offset of each sequence of the producer."""

    def begin(self, client: httpx.Client) -> None:
        """Store an offset and an ingest profile, begin a sequence, read a page, run the job."""
        group = {"offset": 1_234}
        client.put(f"/v1/groups/readers/offsets/{FLIGHTS}/1", json=group).raise_for_status()
        profile = {"headers": ["x-origin"]}
        client.put(f"/v1/topics/{FLIGHTS}/ingest-profile", json=profile).raise_for_status()
        self.producer_id = client.post("/v1/producers").raise_for_status().json()["producer_id"]
        for sequence in range(5):
            self.send(client, sequence)
        page = client.get(f"/v1/topics/{FLIGHTS}/partitions/0/records?max_records=10")
        self.page_link = page.raise_for_status().links["next"]["url"]
        self.ingest()

    def go_on(self, client: httpx.Client) -> None:
        """Repeat the last request, whose answer was lost, and send more; read where the page ended.

        The job copies what is new; the offset and the profile are there.
        """
        last = max(self.sent)
        assert self.send(client, last)["duplicate"]
        for sequence in range(last + 1, last + 6):
            assert not self.send(client, sequence)["duplicate"]
        gap = self.post(client, last + 20)
        assert (gap.status_code, gap.json()["code"]) == (409, "sequence_gap")
        offsets = client.get("/v1/groups/readers/offsets").raise_for_status().json()["offsets"]
        assert [(one["partition"], one["offset"]) for one in offsets] == [(1, 1_234)]
        profile = client.get(f"/v1/topics/{FLIGHTS}/ingest-profile").raise_for_status().json()
        assert profile["headers"] == ["x-origin"]
        self.ingest()

    def follow_link(self, client: httpx.Client) -> None:
        """Go on reading at the URL that the last page gave."""
        page = client.get(self.page_link).raise_for_status().json()
        assert page["records"][0]["offset"] == 10

    def post(self, client: httpx.Client, sequence: int) -> httpx.Response:
        numbers = {"id": self.producer_id, "epoch": 0, "sequence": sequence}
        return client.post(
            f"/v1/topics/{FLIGHTS}/partitions/3/records",
            json={"records": [{"key": "p", "value": {"sequence": sequence}}]},
            headers={f"producer-{name}": str(number) for name, number in numbers.items()},
        )

    def send(self, client: httpx.Client, sequence: int) -> dict[str, Any]:
        receipt: dict[str, Any] = self.post(client, sequence).raise_for_status().json()
        known = self.sent.setdefault(sequence, receipt["base_offset"])
        assert receipt["base_offset"] == known
        return receipt

    def ingest(self) -> None:
        """Copy everything into the lake, from where the job's checkpoint is."""
        lake = self.folder / "lake"
        command = [sys.executable, "-m", "app.cli", "ingest", "--server", self.url]
        command += ["--topic", FLIGHTS, "--to", f"parquet:{lake}", "--checkpoint", f"{lake}.state"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def in_the_lake(self) -> list[tuple[int, int]]:
        """Return partition and offset of every row."""
        tables = [
            pq.ParquetFile(path).read(["partition", "offset"])
            for path in (self.folder / "lake").glob("batches=*/batch_id=*/*.parquet")
        ]
        rows = (row for table in tables for row in table.to_pylist())
        return sorted((row["partition"], row["offset"]) for row in rows)


def places(records: Sequence[BrokerRecord]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_clients_go_on_in_a_cluster_and_at_home_again(move: Move, *, is_clean: bool) -> None:
    """The same offsets at the same address, nothing lost, nothing twice."""
    home = Replica(move.folder / "home.txt", "--data-dir", str(move.data))
    clients = Clients(home.url, move.folder)
    with httpx.Client(base_url=home.url, timeout=PATIENCE_S) as client:
        with home:
            fill(client, int(time.time() * 1000))
            clients.begin(client)
            topics = client.get("/v1/topics").json()["topics"]
            uncommitted = served(client, FLIGHTS, PARTITIONS)
            committed = served(client, FLIGHTS, PARTITIONS, "read_committed")
            latest = served(client, LATEST, 1)
            if not is_clean:
                home.kill()
        assert clients.in_the_lake() == places(uncommitted)

        stop, form, export, start, _ = move.steps("The move", home.port)
        for step in (stop, form, export):
            move.run(step)
        with move.cluster as cluster:
            move.wait_until_replicated(start)
            first, second, _ = cluster.brokers
            assert {each["topic"]: each["topic_id"] for each in topics}.items() <= described(
                first
            ).items()
            first.kill()  # the node that had the only copy
            cluster.wait_for(2)
            assert second.records(FLIGHTS) == uncommitted
            assert second.records(FLIGHTS, isolation="read_committed") == committed
            there = Replica(
                move.folder / "there.txt",
                *("--kafka", cluster.bootstrap, "--data-dir", str(move.data)),
                port=home.port,
            )
            with there:
                assert served(client, FLIGHTS, PARTITIONS) == uncommitted
                assert served(client, FLIGHTS, PARTITIONS, "read_committed") == committed
                assert served(client, LATEST, 1) == latest
                clients.follow_link(client)
                clients.go_on(client)
                first.start()
                cluster.wait_until_in_sync()
                everything = served(client, FLIGHTS, PARTITIONS)
                keep, stop, copy, configure = move.steps("The way back", home.port)
                move.run(keep)
            assert everything == second.records(FLIGHTS)
            assert everything[: len(uncommitted)] == uncommitted  # partition 3 is the last one
            assert places(everything) == clients.in_the_lake()
            move.wait_until_replicated(stop)

        move.run(copy)
        back = Replica(
            move.folder / "back.txt", "--data-dir", str(move.folder / "back"), port=home.port
        )
        with back:
            move.run(configure)
            again = client.get("/v1/topics").json()["topics"]
            assert {(each["topic"], each["topic_id"]) for each in again} == {
                (each["topic"], each["topic_id"]) for each in topics
            }
            flights = client.get(f"/v1/topics/{FLIGHTS}").json()["config"]
            assert flights["segment.bytes"] == {"value": str(SEGMENT_BYTES), "source": "topic"}
            assert served(client, FLIGHTS, PARTITIONS) == everything
            assert served(client, LATEST, 1) == latest
            clients.go_on(client)
            assert clients.in_the_lake() == places(served(client, FLIGHTS, PARTITIONS))
