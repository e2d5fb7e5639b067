"""A data directory becomes a cluster's, and a cluster's becomes ours: the commands of the page."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pyarrow.parquet as pq
import pytest

from bench.peers.cluster import Cluster
from bench.peers.packages import jars_of
from tests.support.broker import BrokerRecord, RealBroker
from tests.support.cluster import cluster_of
from tests.support.flights import FLIGHTS, LATEST, PARTITIONS, SEGMENT_BYTES, fill, served
from tests.support.generators import client_module, python_client
from tests.support.kafka_scripts import with_scripts
from tests.support.raw import connect
from tests.support.replica_set import PATIENCE_S, Replica

pytestmark = [pytest.mark.long, pytest.mark.needs("java", "mvn", "jq", "curl")]

PAGE = Path(__file__).parents[2] / "docs" / "outgrow.md"
RECORDS = f"/v1/topics/{FLIGHTS}/partitions/3/records"
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
    generated: Any
    """A client that a generator made."""
    page_link: str = ""
    producer_id: int = -1
    sent: dict[int, int] = field(default_factory=dict)
    """The offset of each sequence of the producer."""
    read_until: int = 0
    """The next offset of the generated client."""

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
        self.append_and_read()

    def leave_open(self, client: httpx.Client) -> socket.socket:
        """Send a request and never read its answer; return once it is stored."""
        wire = connect(self.url)
        wire.sendall(as_sent(self.request(client, 5)))
        poll = {"offset": str(self.read_until), "max_wait_ms": "60000"}
        (stored,) = client.get(RECORDS, params=poll).raise_for_status().json()["records"]
        self.sent[5] = stored["offset"]
        return wire

    def go_on(self, client: httpx.Client) -> None:
        """Repeat the last request, whose answer was lost, and send more; read where the page ended.

        The job copies what is new; the offset and the profile are there.
        """
        last = max(self.sent)
        assert self.send(client, last)["duplicate"]
        for sequence in range(last + 1, last + 6):
            assert not self.send(client, sequence)["duplicate"]
        gap = client.send(self.request(client, last + 20))
        assert (gap.status_code, gap.json()["code"]) == (409, "sequence_gap")
        offsets = client.get("/v1/groups/readers/offsets").raise_for_status().json()["offsets"]
        assert [(one["partition"], one["offset"]) for one in offsets] == [(1, 1_234)]
        profile = client.get(f"/v1/topics/{FLIGHTS}/ingest-profile").raise_for_status().json()
        assert profile["headers"] == ["x-origin"]
        self.append_and_read()
        self.ingest()

    def follow_link(self) -> None:
        """Go on reading at the URL that the last page gave."""
        assert self.curl(urljoin(self.url, self.page_link))["records"][0]["offset"] == 10

    def append_and_read(self) -> None:
        """Append with curl and with the generated client, which reads on where it was."""
        one = {"key": "curl", "value": 1}
        body = ("-H", "Content-Type: application/json", "-d", json.dumps({"records": [one]}))
        offset = self.curl(self.url + RECORDS, *body)["base_offset"]
        record = client_module("models").RecordIn.from_dict({"key": "sdk", "value": offset})
        records = client_module("models").RecordsIn(records=[record])
        append = client_module("api.produce.append_records").sync
        assert append(FLIGHTS, 3, client=self.generated, body=records).base_offset == offset + 1
        read = client_module("api.consume.read_records").sync
        while self.read_until < offset + 2:
            page = read(FLIGHTS, 3, client=self.generated, offset=str(self.read_until))
            found = [one.offset for one in page.records]
            assert found == [*range(self.read_until, page.next_offset)]
            self.read_until = page.next_offset

    def curl(self, *words: str) -> dict[str, Any]:
        command = ["curl", "-sS", "--fail-with-body", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def request(self, client: httpx.Client, sequence: int) -> httpx.Request:
        numbers = {"id": self.producer_id, "epoch": 0, "sequence": sequence}
        return client.build_request(
            "POST",
            RECORDS,
            json={"records": [{"key": "p", "value": {"sequence": sequence}}]},
            headers={f"producer-{name}": str(number) for name, number in numbers.items()},
        )

    def send(self, client: httpx.Client, sequence: int) -> dict[str, Any]:
        answer = client.send(self.request(client, sequence)).raise_for_status()
        receipt: dict[str, Any] = answer.json()
        known = self.sent.setdefault(sequence, receipt["base_offset"])
        assert receipt["base_offset"] == known
        return receipt

    def ensure_once(self, records: Sequence[BrokerRecord]) -> None:
        """Fail unless each sequence is stored once, in order, at the offset of its receipt."""
        stored = [record for record in records if record.key == "p"]
        assert [json.loads(one.value)["sequence"] for one in stored] == sorted(self.sent)
        assert [one.offset for one in stored] == [self.sent[one] for one in sorted(self.sent)]

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


def as_sent(request: httpx.Request) -> bytes:
    """Return a request as it is on the wire."""
    lines = [b"%b: %b\r\n" % header for header in request.headers.raw]
    target = request.method.encode() + b" " + request.url.raw_path
    return target + b" HTTP/1.1\r\n" + b"".join(lines) + b"\r\n" + request.read()


def begins_with(records: Sequence[BrokerRecord], before: Sequence[BrokerRecord]) -> bool:
    """Whether more was only appended, to the last partition."""
    return records[: len(before)] == before


def places(records: Sequence[BrokerRecord]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def ensure_home_again(
    client: httpx.Client,
    clients: Clients,
    topics: Sequence[Mapping[str, Any]],
    everything: Sequence[BrokerRecord],
) -> None:
    """Fail unless the topics and records are those of the cluster, and clients go on."""
    again = client.get("/v1/topics").json()["topics"]
    assert {(each["topic"], each["topic_id"]) for each in again} == {
        (each["topic"], each["topic_id"]) for each in topics
    }
    flights = client.get(f"/v1/topics/{FLIGHTS}").json()["config"]
    assert flights["segment.bytes"] == {"value": str(SEGMENT_BYTES), "source": "topic"}
    assert served(client, FLIGHTS, PARTITIONS) == everything
    clients.go_on(client)
    everything = served(client, FLIGHTS, PARTITIONS)
    clients.ensure_once(everything)
    assert clients.in_the_lake() == places(everything)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_clients_go_on_in_a_cluster_and_at_home_again(move: Move, *, is_clean: bool) -> None:
    """The same offsets at the same address, nothing lost, nothing twice."""
    home = Replica(move.folder / "home.txt", "--data-dir", str(move.data))
    with (
        python_client(move.folder / "sdk"),
        httpx.Client(base_url=home.url, timeout=PATIENCE_S) as client,
        client_module("client").Client(home.url) as generated,
    ):
        clients = Clients(home.url, move.folder, generated)
        with home:
            fill(client, int(time.time() * 1000))
            clients.begin(client)
            clients.ingest()
            topics = client.get("/v1/topics").json()["topics"]
            wire = clients.leave_open(client)
            uncommitted = served(client, FLIGHTS, PARTITIONS)
            committed = served(client, FLIGHTS, PARTITIONS, "read_committed")
            latest = served(client, LATEST, 1)
            home.freeze()
            wire.sendall(as_sent(clients.request(client, 6)))
            if not is_clean:
                home.kill()
        wire.close()

        stop, form, export, start, _ = move.steps("The move", home.port)
        for step in (stop, form, export):
            move.run(step)
        with move.cluster as cluster:
            move.wait_until_replicated(start)
            first, second, _ = cluster.brokers
            ids = {each["topic"]: each["topic_id"] for each in topics}
            assert ids.items() <= described(first).items()
            first.kill()  # the node that had the only copy
            cluster.wait_for(2)
            there = Replica(
                move.folder / "there.txt",
                *("--kafka", cluster.bootstrap, "--data-dir", str(move.data)),
                port=home.port,
            )
            with there:
                found = served(client, FLIGHTS, PARTITIONS)
                assert found == second.records(FLIGHTS)
                assert begins_with(found, uncommitted)
                found = served(client, FLIGHTS, PARTITIONS, "read_committed")
                assert found == second.records(FLIGHTS, isolation="read_committed")
                assert begins_with(found, committed)
                assert served(client, LATEST, 1) == latest
                clients.follow_link()
                for sequence in (5, 6):
                    clients.send(client, sequence)
                clients.go_on(client)
                first.start()
                cluster.wait_until_in_sync()
                everything = served(client, FLIGHTS, PARTITIONS)
                keep, stop, copy, configure = move.steps("The way back", home.port)
                move.run(keep)
            assert everything == second.records(FLIGHTS)
            assert begins_with(everything, uncommitted)
            clients.ensure_once(everything)
            assert places(everything) == clients.in_the_lake()
            move.wait_until_replicated(stop)

        move.run(copy)
        back = Replica(
            move.folder / "back.txt", "--data-dir", str(move.folder / "back"), port=home.port
        )
        with back:
            move.run(configure)
            ensure_home_again(client, clients, topics, everything)
            assert served(client, LATEST, 1) == latest
