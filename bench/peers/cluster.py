"""An Apache Kafka cluster on loopback: combined KRaft nodes that can be killed and restarted."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Generic, Self, TypeAlias, TypeVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from bench.peers.kafka import Broker, Seat

_START_TIMEOUT_S: Final = 120.0
_ASK_TIMEOUT_S: Final = 5.0
_PAUSE_S: Final = 0.2

SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": "8388608",  # 128 MiB of a small heap otherwise
    "num.io.threads": "4",
}
"""What each node has in common with a cluster that must not lose a record."""

B = TypeVar("B", bound=Broker)
T = TypeVar("T")
Question: TypeAlias = Callable[[AIOKafkaAdminClient], Awaitable[T]]


class Cluster(Generic[B]):
    """Three nodes, or as many as asked for, while the `with` block runs; they start together.

    `make` is the class of the brokers, `settings` are added to `SETTINGS`. A second `with` block
    goes on with the same data, and so does a node that was killed.
    """

    def __init__(
        self,
        make: type[B],
        jars: Path,
        folder: Path,
        *,
        nodes: int = 3,
        heap_mib: int = 256,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        asked = {**SETTINGS, **(settings or {})}
        self.brokers = [
            make(jars, folder, seat, heap_mib=heap_mib, settings=asked)
            for seat in Seat.of_cluster(nodes)
        ]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as clients take them."""
        return ",".join(broker.address for broker in self.brokers)

    def __enter__(self) -> Self:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Broker.format, self.brokers))
        for broker in self.brokers:
            broker.start()
        try:
            self.wait_for(len(self.brokers))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor() as pool:  # a controlled shutdown needs the others
            list(pool.map(Broker.stop, self.brokers))

    def wait_for(self, brokers: int) -> None:
        """Return once so many brokers are in service; raise SystemExit if that takes too long."""
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < give_up_at:
            if self._brokers_in_service() == brokers:
                return
            time.sleep(_PAUSE_S)
        raise self._failed(f"not {brokers} brokers")

    def wait_until_in_sync(self) -> None:
        """Return once each partition has all its replicas; raise SystemExit if never."""
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < give_up_at:
            if self._ask(_is_in_sync):
                return
            time.sleep(_PAUSE_S)
        raise self._failed("replicas are missing")

    def _failed(self, what: str) -> SystemExit:
        told = (broker.told() for broker in self.brokers)
        return SystemExit("\n".join([f"{what} at {self.bootstrap}", *told]))

    def _brokers_in_service(self) -> int:
        return self._ask(_count) or 0

    def _ask(self, question: Question[T]) -> T | None:
        """Ask those that listen; None if no broker answers."""
        listening = [broker.address for broker in self.brokers if _listens(broker.address)]
        try:
            return asyncio.run(_asked(listening, question)) if listening else None
        except KafkaError:
            return None


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ASK_TIMEOUT_S).close()
    except OSError:
        return False
    return True


async def _asked(addresses: Sequence[str], question: Question[T]) -> T:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=[*addresses], request_timeout_ms=int(_ASK_TIMEOUT_S * 1000)
    )
    try:
        await admin.start()
        return await question(admin)
    finally:
        await admin.close()


async def _count(admin: AIOKafkaAdminClient) -> int:
    return len((await admin.describe_cluster())["brokers"])


async def _is_in_sync(admin: AIOKafkaAdminClient) -> bool:
    topics = await admin.describe_topics()
    partitions = [partition for topic in topics for partition in topic["partitions"]]
    return all({*one["isr"]} == {*one["replicas"]} for one in partitions)
