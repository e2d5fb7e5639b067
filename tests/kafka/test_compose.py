"""The settings of the profile `kafka` in docker-compose.yml start a cluster and two replicas.

Without Docker: each name of a container is an address on loopback here, and the settings of a
broker become properties as its image makes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from bench.peers.cluster import Cluster
from bench.peers.kafka import Seat
from bench.peers.packages import jars_of
from tests.support.broker import RealBroker
from tests.support.replica_set import PATIENCE_S, Replica

pytestmark = [pytest.mark.long, pytest.mark.needs("java", "mvn")]

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
DATA = "/var/lib/kafka/data"


def settings_of(service: str) -> dict[str, str]:
    """Return the environment of a service."""
    services: Any = yaml.safe_load(COMPOSE.read_text())["services"]
    assert services[service]["profiles"] == ["kafka"]
    return dict(services[service]["environment"])


def here(value: str, seats: Mapping[int, tuple[int, int]], node: int = 0) -> str:
    """Return a setting with the addresses of this test in place of the containers' names."""
    for number, (broker, controller) in seats.items():
        value = value.replace(f"kafka-{number}:9092", f"127.0.0.1:{broker}")
        value = value.replace(f"kafka-{number}:9093", f"127.0.0.1:{controller}")
        if number == node:
            value = value.replace("://:9092", f"://127.0.0.1:{broker}")
            value = value.replace("://:9093", f"://127.0.0.1:{controller}")
    assert not re.search(r"kafka-\d", value), value
    return value


class ComposedBroker(RealBroker):
    """A broker with the settings of its container, and no others."""

    def __init__(self, jars: Path, folder: Path, seat: Seat, **more: Any) -> None:
        found = settings_of(f"kafka-{seat.node_id}")
        self.seats = seat.ports
        seat = replace(seat, cluster_id=found.pop("CLUSTER_ID"))
        super().__init__(jars, folder, seat, heap_mib=more["heap_mib"], settings={})
        properties = {
            name.removeprefix("KAFKA_").lower().replace("_", "."): here(
                value, seat.ports, seat.node_id
            )
            for name, value in found.items()
        }
        assert properties["log.dirs"] == DATA
        properties["log.dirs"] = str(self.data)
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        self.properties.write_text("".join(lines))


def test_the_profile_kafka_is_a_cluster_with_two_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one replica stores, the other reads, on three brokers."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(ComposedBroker, jars_of("kafka"), tmp_path))
        urls = []
        for number in (1, 2):
            for name, value in settings_of(f"tidelog-kafka-{number}").items():
                is_address = name == "TIDELOG_KAFKA"
                seats = cluster.brokers[0].seats
                monkeypatch.setenv(name, here(value, seats) if is_address else value)
            replica = Replica(tmp_path / f"replica-{number}.txt")
            urls.append(stack.enter_context(replica).url)
        first, second = (
            stack.enter_context(httpx.Client(base_url=url, timeout=PATIENCE_S)) for url in urls
        )
        made = first.put("/v1/topics/events", json={"partitions": 3}).raise_for_status().json()
        assert made["topic"] == "events"
        records = {"records": [{"value": 1}]}
        path = "/v1/topics/events/partitions/2/records"
        first.post(path, json=records).raise_for_status()
        page = second.get(path).raise_for_status().json()
        assert [record["value"] for record in page["records"]] == [1]
        told = cluster.brokers[0].tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", cluster.bootstrap, "--describe", "--topic", "events"),
        )
        assert "ReplicationFactor: 3" in told
        assert all({*one} == {*"1,2,3"} for one in re.findall(r"Isr: (\S+)", told))
        assert "min.insync.replicas=2" in told
