"""An Apache Kafka broker on loopback, and the performance tools that come with it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final, Self

from bench.peers.packages import class_path
from bench.peers.program import Program, free_ports
from pyspark_tidelog.java import find_java

_STORAGE: Final = "kafka.tools.StorageTool"
_BROKER: Final = "kafka.Kafka"
TOOLS: Final = "org.apache.kafka.tools"
_MIB: Final = 1 << 20

_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""


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


class Broker(Program):
    """One broker, its own controller, while the `with` block runs. Its heap is the usual 1 GiB.

    `data` is its data directory, on which a second `with` block goes on.
    """

    def __init__(self, jars: Path, folder: Path) -> None:
        self._jars = jars
        self.data = folder / "kafka"
        self._properties = folder / "server.properties"
        broker, controller = free_ports(2)
        self.address = f"127.0.0.1:{broker}"
        self._properties.write_text(
            _PROPERTIES.format(broker=broker, controller=controller, data=self.data)
        )
        command = [*_java(jars, "-Xms1g", "-Xmx1g"), _BROKER, str(self._properties)]
        super().__init__(command, folder / "kafka.txt", f"kafka://{self.address}")

    def __enter__(self) -> Self:
        if not self.data.exists():
            identifier = self.tool(_STORAGE, "random-uuid").split()[-1]
            self.tool(_STORAGE, "format", "-t", identifier, "-c", str(self._properties))
        return super().__enter__()

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

    def segment(self, topic: str, partition: int) -> Path:
        """Return the first segment's log file: record batches, one after the other."""
        return self.data / f"{topic}-{partition}" / f"{0:020d}.log"

    def tool(self, name: str, *arguments: str, given: str | None = None) -> str:
        """Run a tool as `run_tool` does; if it fails, the broker's last words are told, too."""
        try:
            return run_tool(self._jars, name, *arguments, given=given)
        except SystemExit as error:
            raise SystemExit(f"{error}\n{self.told()}") from None
