"""A real Kafka broker, with what its own tools read and write."""

from typing import NamedTuple

from bench.peers.kafka import TOOLS, Broker

_QUIET_MS = "20000"
_SHOWN = ("timestamp", "partition", "offset", "headers", "key")


class BrokerRecord(NamedTuple):
    """One record as the console consumer prints it."""

    partition: int
    offset: int
    timestamp: int
    headers: str
    key: str
    value: str


class RealBroker(Broker):
    """Reads with the console consumer, appends with the console producer."""

    def records(self, topic: str, *, isolation: str = "read_uncommitted") -> list[BrokerRecord]:
        """Return every record of a topic, in order of partition and offset."""
        shown = (f"print.{name}=true" for name in _SHOWN)
        told = self.tool(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *("--bootstrap-server", self.address, "--topic", topic, "--from-beginning"),
            *("--isolation-level", isolation, "--timeout-ms", _QUIET_MS),
            *(word for setting in shown for word in ("--formatter-property", setting)),
        )
        return sorted(_parsed(line) for line in told.splitlines() if "\tPartition:" in line)

    def wait_until_it_answers(self) -> None:
        """Return once it lists its topics: its tools wait for a broker for a minute."""
        self.tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", self.address, "--list")

    def produce_lines(self, topic: str, lines: list[tuple[str, str]]) -> None:
        """Append keys and values with `acks=all`."""
        self.tool(
            f"{TOOLS}.ConsoleProducer",
            *("--bootstrap-server", self.address, "--topic", topic),
            *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
            given="".join(f"{key}|{value}\n" for key, value in lines),
        )

    def offsets(self, topic: str, time: int) -> dict[int, int]:
        """Return each partition's offset at a time, or -1 latest, -2 earliest, -3 newest."""
        told = self.tool(
            f"{TOOLS}.GetOffsetShell",
            *("--bootstrap-server", self.address, "--topic", topic, "--time", str(time)),
        )
        fields = (line.split(":") for line in told.split() if line.startswith(f"{topic}:"))
        return {int(partition): int(offset) for _, partition, offset in fields if offset}


def _parsed(line: str) -> BrokerRecord:
    time, partition, offset, headers, key, value = line.split("\t")
    return BrokerRecord(
        int(partition.removeprefix("Partition:")),
        int(offset.removeprefix("Offset:")),
        int(time.partition(":")[2]),
        headers.removeprefix("Headers:").replace("NO_HEADERS", ""),
        key,
        value,
    )
