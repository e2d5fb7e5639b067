"""The service in front of a Kafka cluster, beside what else one could put there.

Three brokers, the service, Kafka's own tools and Strimzi's HTTP bridge share this machine. Each
pair is measured in turn, in one run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from app.client.connection import Connection, topic_path
from bench.appends import json_value, rounds_of
from bench.crowd import Crowd, run_crowd
from bench.download import Download, run_download
from bench.figures import Figure
from bench.load import post
from bench.memory import MemoryWatch
from bench.peers import bridge
from bench.peers.cluster import Cluster
from bench.peers.kafka import Broker
from bench.peers.packages import jars_of
from bench.peers.values import VALUE_BYTES, some_values, write_values
from bench.target import Bench
from demo.children import Server
from engine.records.builder import NewRecord, build_batch

_PARTITIONS: Final = 4
_BATCHES: Final = "application/vnd.kafka.recordbatch.v2"
_JSON: Final = "application/json"
_BATCH_RECORDS: Final = 436  # as many of Kafka's fill its 64 KiB
_CONNECTIONS: Final = 64
_RECORDS: Final = 500_000
"""That Kafka's producer sends in a round, some five seconds."""
_ROUNDS: Final = 3
_TAILS: Final = 1_000
_COMMITS: Final = 10
_HEAP_MIB: Final = 512
_MEMORY_CEILING_MIB: Final = 200
_MIB: Final = 1 << 20


def kafka(bench: Bench) -> list[Figure]:
    """Start three brokers and the service, and measure every pair."""
    with (
        Cluster(Broker, jars_of("kafka"), bench.folder, heap_mib=_HEAP_MIB) as cluster,
        Server(
            ["app.cli", "serve", "--kafka", cluster.bootstrap, "--port", "0"],
            bench.folder / "before-kafka.txt",
        ) as service,
        Connection(service.url) as connection,
        MemoryWatch(service.pid) as memory,
    ):
        here = type(bench)(service, connection, bench.folder, bench.seconds)
        figures = [
            *_raw_appends(here, cluster),
            *_json_appends(here, cluster),
            _reads(here, cluster),
            _tails(here, cluster),
        ]
    figures.append(
        Figure(
            "Kafka: memory of a replica under all of this",
            memory.peak_bytes / _MIB,
            "MiB",
            target=_MEMORY_CEILING_MIB,
            is_ceiling=True,
        )
    )
    return figures


def _raw_appends(bench: Bench, cluster: Cluster[Broker]) -> Iterator[Figure]:
    """Append raw batches of 64 KiB, in turn with Kafka's producer, on topics of their own."""
    broker, values = cluster.brokers[0], write_values(bench.folder)
    for topic in ("raw", "native"):
        bench.create_topic(topic, _PARTITIONS)
    now_ms = int(time.time() * 1000)
    records: list[NewRecord] = [(now_ms, None, value, []) for value in some_values(_BATCH_RECORDS)]
    batch = bytes(build_batch(records))
    paths = [topic_path("raw", number, "batches") for number in range(_PARTITIONS)]
    requests = [post(path, _BATCHES, batch) for path in paths]
    broker.produce("native", values, _RECORDS // 4)  # the JVMs compile what is hot
    ours, theirs = [], []
    for _ in range(_ROUNDS):
        ours.append(bench.load(requests, _CONNECTIONS))
        theirs.append(broker.produce("native", values, _RECORDS))
    appended, produced = rounds_of(ours), sorted(theirs)[_ROUNDS // 2]
    rate = appended.per_second * _BATCH_RECORDS
    yield Figure(
        f"Kafka: records of {VALUE_BYTES} bytes appended in raw batches of 64 KiB",
        rate,
        "records/s",
        target=0.8 * produced,
        yardstick="Kafka's producer, acks=all",
        yardstick_value=produced,
        note=f"{rate / produced:.2f} times; {appended.note}",
    )


def _json_appends(bench: Bench, cluster: Cluster[Broker]) -> Iterator[Figure]:
    """Append one record of JSON a request, in turn with the bridge before the same brokers.

    Nothing is measured unless the bridge is built.
    """
    if not bridge.is_built():
        return
    for topic in ("json", "bridged"):
        bench.create_topic(topic, _PARTITIONS)
    value = json_value(random.Random(1))
    body = b'{"records":[{"value":%s}]}' % value
    paths = [topic_path("json", number, "records") for number in range(_PARTITIONS)]
    requests = [post(path, _JSON, body) for path in paths]
    ours, theirs = [], []
    with bridge.bridge(cluster.bootstrap, bench.folder) as peer:
        peer.wait_for("/healthy")
        asked = [post("/topics/bridged", bridge.CONTENT_TYPE, body)]
        bench.load(asked, _CONNECTIONS, peer)  # the JVM compiles what is hot
        for _ in range(_ROUNDS):
            ours.append(bench.load(requests, _CONNECTIONS))
            theirs.append(bench.load(asked, _CONNECTIONS, peer))
    appended, bridged = rounds_of(ours), rounds_of(theirs)
    yield Figure(
        f"Kafka: JSON, one record a request, {_CONNECTIONS} connections",
        appended.per_second,
        "records/s",
        target=4 * bridged.per_second,
        yardstick=bridge.NAME,
        yardstick_value=bridged.per_second,
        note=f"{appended.per_second / bridged.per_second:.2f} times; {appended.note}",
    )


def _reads(bench: Bench, cluster: Cluster[Broker]) -> Figure:
    """Read raw batches on one connection, in turn with Kafka's consumer."""
    host, port = _address(bench)
    path = topic_path("native", 0, "batches")
    ours, theirs = [], []
    for _ in range(_ROUNDS):
        ours.append(run_download(Download(host, port, path, bench.seconds)).per_second)
        consumed_bytes, _ = cluster.brokers[0].consume("native", _ROUNDS * _RECORDS)
        theirs.append(consumed_bytes)
    read, consumed = sorted(ours)[_ROUNDS // 2], sorted(theirs)[_ROUNDS // 2]
    return Figure(
        f"Kafka: records of {VALUE_BYTES} bytes read raw, one connection",
        read / 1e6,
        "MB/s",
        target=0.8 * consumed / 1e6,
        yardstick="Kafka's consumer",
        yardstick_value=consumed / 1e6,
        note=f"{read / consumed:.2f} times; bytes of batches against bytes of records",
    )


def _tails(bench: Bench, cluster: Cluster[Broker]) -> Figure:
    """Count the Fetch requests at the brokers while one tail stands there, then a thousand."""
    per_second = [
        _fetches_per_second(bench, cluster, f"tails-{tails}", tails) for tails in (1, _TAILS)
    ]
    one, many = per_second
    return Figure(
        f"Kafka: Fetch requests at the brokers for {_TAILS:,} tails of a partition",
        many,
        "1/s",
        target=1.2 * one,
        yardstick="one tail",
        yardstick_value=one,
        is_ceiling=True,
        note=f"while {_COMMITS} records are appended",
    )


def _fetches_per_second(bench: Bench, cluster: Cluster[Broker], topic: str, tails: int) -> float:
    bench.create_topic(topic, partitions=1)
    host, port = _address(bench)
    path = topic_path(topic, 0)
    crowd = Crowd(host, port, bench.service.pid, path, polls=0, tails=tails, commits=_COMMITS)
    before, began = sum(broker.fetch_requests() for broker in cluster.brokers), time.monotonic()
    run_crowd(crowd)
    seconds = time.monotonic() - began
    return (sum(broker.fetch_requests() for broker in cluster.brokers) - before) / seconds


def _address(bench: Bench) -> tuple[str, int]:
    address = urlsplit(bench.service.url)
    return address.hostname or "", address.port or 0
