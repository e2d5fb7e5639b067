"""An Apache Kafka broker on loopback, and the performance tools that come with it."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from bench.peers.packages import class_path
from bench.peers.program import Program, free_ports
from pyspark_tidelog.java import find_java

_STORAGE: Final = "kafka.tools.StorageTool"
_BROKER: Final = "kafka.Kafka"
TOOLS: Final = "org.apache.kafka.tools"
_REQUESTS: Final = "kafka.network:type=RequestMetrics,name=RequestsPerSec"
_MIB: Final = 1 << 20

_PROPERTIES: Final = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={data}
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""
_ALONE: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@dataclass(frozen=True)
class Seat:
    """The place of one node in its cluster: the ports of all nodes by node id, and its own id."""

    cluster_id: str
    node_id: int
    ports: Mapping[int, tuple[int, int]]
    """Of the broker and of the controller."""

    @classmethod
    def of_cluster(cls, nodes: int) -> list[Self]:
        """Return the seats of a new cluster, with ports that are free now."""
        found = free_ports(2 * nodes)
        ports = {number + 1: (found[number], found[nodes + number]) for number in range(nodes)}
        cluster_id = base64.urlsafe_b64encode(b"t" + os.urandom(15)).decode().rstrip("=")
        return [cls(cluster_id, node_id, ports) for node_id in ports]

    def properties(self) -> str:
        """Return the settings that follow from the seat, `{data}` left open."""
        broker, controller = self.ports[self.node_id]
        voters = ",".join(f"{one}@127.0.0.1:{port}" for one, (_, port) in self.ports.items())
        return _PROPERTIES.format(
            node_id=self.node_id, voters=voters, broker=broker, controller=controller, data="{data}"
        )


def run_tool(jars: Path, *words: str, given: str | None = None) -> str:
    """Run one of Kafka's tools, `given` on its standard input; return what it prints.

    Raises SystemExit with its last words if it fails.
    """
    command = [*_java(jars), *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _java(jars: Path, *options: str) -> list[str]:
    java = find_java(os.environ).path / "bin" / "java"
    return [str(java), *options, "-cp", class_path(jars)]


def _jmx(port: int) -> list[str]:
    settings = {"port": port, "rmi.port": port, "host": "127.0.0.1"}
    settings |= {"authenticate": "false", "ssl": "false"}
    words = [f"-Dcom.sun.management.jmxremote.{key}={value}" for key, value in settings.items()]
    return [*words, "-Djava.rmi.server.hostname=127.0.0.1"]


class Broker(Program):
    """One broker, a controller too, while the `with` block runs. Its heap is the usual 1 GiB.

    `data` is its data directory, on which a second `with` block goes on. Without a seat it is a
    cluster of its own. `settings` are lines of its `server.properties`, `scram_users` are as
    `kafka-storage --add-scram` takes them.
    """

    def __init__(
        self,
        jars: Path,
        folder: Path,
        seat: Seat | None = None,
        *,
        heap_mib: int = 1024,
        settings: Mapping[str, str] = _ALONE,
        scram_users: Sequence[str] = (),
    ) -> None:
        seat = seat or Seat.of_cluster(1)[0]
        name = "kafka" if len(seat.ports) == 1 else f"kafka-{seat.node_id}"
        self._jars = jars
        self._users = [word for user in scram_users for word in ("--add-scram", user)]
        self._cluster_id = seat.cluster_id
        self.data = folder / name
        self.properties = folder / f"{name}.properties"
        self.address = f"127.0.0.1:{seat.ports[seat.node_id][0]}"
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        self.properties.write_text(seat.properties().format(data=self.data) + "".join(lines))
        (self._jmx_port,) = free_ports(1)
        options = (f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m", *_jmx(self._jmx_port))
        command = [*_java(jars, *options), _BROKER, str(self.properties)]
        super().__init__(command, folder / f"{name}.txt", f"kafka://{self.address}")

    def __enter__(self) -> Self:
        self.format()
        return super().__enter__()

    def format(self) -> None:
        """Make its data directory, unless it is there."""
        if not self.data.exists():
            settings = str(self.properties)
            words = ("-t", self._cluster_id, "-c", settings, *self._users)
            self.tool(_STORAGE, "format", *words)

    def create_topic(self, topic: str, partitions: int, **settings: str) -> None:
        """Create a topic, `_` for `.` in its settings; the first one waits for the broker."""
        config: list[str] = []
        for name, value in settings.items():
            config += ["--config", f"{name.replace('_', '.')}={value}"]
        self.tool(
            f"{TOOLS}.TopicCommand",
            *("--bootstrap-server", self.address, "--create", "--topic", topic),
            *("--partitions", str(partitions), *config),
        )

    def produce(self, topic: str, values: Path, records: int) -> float:
        """Send records with one of the lines of a file as value; return how many a second."""
        told = self.tool(
            f"{TOOLS}.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--throughput", "-1"),
            *("--payload-file", str(values), "--bootstrap-server", self.address),
            *("--producer-props", "acks=all", "batch.size=65536", "linger.ms=20"),
        )
        rates = re.findall(rf"^{records} records sent, ([\d.]+) records/sec", told, re.MULTILINE)
        if not rates:
            raise SystemExit(f"the producer said nothing of {records} records:\n{told[-2000:]}")
        return float(rates[-1])

    def consume(self, topic: str, records: int) -> tuple[float, float]:
        """Read records; return bytes and records a second while it was fetching."""
        told = self.tool(
            f"{TOOLS}.ConsumerPerformance",
            *("--bootstrap-server", self.address, "--topic", topic),
            *("--num-records", str(records), "--timeout", "60000"),
        )
        fields = told.splitlines()[-1].split(", ")
        return float(fields[-2]) * _MIB, float(fields[-1])

    def fetch_requests(self) -> int:
        """Return how many Fetch requests of consumers it has received; replicas do not count."""
        told = self.tool(
            f"{TOOLS}.JmxTool",
            *("--object-name", f"{_REQUESTS},request=FetchConsumer,*", "--attributes", "Count"),
            *("--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{self._jmx_port}/jmxrmi"),
            *("--one-time", "true", "--report-format", "properties"),
        )
        return sum(int(count) for count in re.findall(r":Count=(\d+)$", told, re.MULTILINE))

    def segment(self, topic: str, partition: int) -> Path:
        """Return the first segment's log file: record batches, one after the other."""
        return self.data / f"{topic}-{partition}" / f"{0:020d}.log"

    def tool(self, name: str, *arguments: str, given: str | None = None) -> str:
        """Run a tool as `run_tool` does; if it fails, the broker's last words are told, too."""
        try:
            return run_tool(self._jars, name, *arguments, given=given)
        except SystemExit as error:
            raise SystemExit(f"{error}\n{self.told()}") from None
