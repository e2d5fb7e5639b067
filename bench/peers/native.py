"""Kafka's own performance tools against raw batches over HTTP, with records of 140 bytes."""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import urlsplit

from app.client.connection import topic_path
from bench.download import Download, run_download
from bench.figures import Figure
from bench.load import post
from bench.peers.kafka import Broker
from bench.peers.packages import jars_of
from bench.peers.values import VALUE_BYTES, some_values, write_values
from bench.target import Bench
from engine.records.builder import build_batch

_PARTITIONS: Final = 4
_BATCHES: Final = "application/vnd.kafka.recordbatch.v2"
_BATCH_RECORDS: Final = 436  # as many of Kafka's fill its 64 KiB
_CONNECTIONS: Final = 64
_FLUSHED_SHARE: Final = 10
"""Of the records, one in so many is sent to the topic that flushes each; it is the slower one."""


def native(bench: Bench, records: int) -> list[Figure]:
    """Append and read back: what a client of Kafka gets, and what one of ours does."""
    values = write_values(bench.folder)
    with Broker(jars_of("kafka"), bench.folder) as broker:
        broker.create_topic("flushed", _PARTITIONS, flush_messages="1")
        broker.create_topic("cached", _PARTITIONS)
        broker.produce("cached", values, records // 4)  # the JVM compiles what is hot
        flushed = broker.produce("flushed", values, max(records // _FLUSHED_SHARE, 1))
        cached = broker.produce("cached", values, records)
        read_bytes, read_records = broker.consume("cached", records)
    now_ms = int(time.time() * 1000)
    values_of_a_batch = some_values(_BATCH_RECORDS)
    batch = bytes(build_batch([(now_ms, None, value, []) for value in values_of_a_batch]))
    bench.create_topic("native", _PARTITIONS)
    paths = [topic_path("native", partition, "batches") for partition in range(_PARTITIONS)]
    loaded = bench.load([post(path, _BATCHES, batch) for path in paths], _CONNECTIONS)
    address = urlsplit(bench.service.url)
    download = Download(address.hostname or "", address.port or 0, paths[0], bench.seconds)
    read = run_download(download)
    appended = loaded.per_second * _BATCH_RECORDS
    size = f"records of {VALUE_BYTES} bytes"
    return [
        Figure(
            f"{size} appended in raw batches, flushed",
            appended,
            "records/s",
            target=4 * flushed,
            yardstick="Kafka's client, flush.messages=1",
            yardstick_value=flushed,
            note=f"{appended / flushed:.2f} times; {loaded.note}",
        ),
        Figure(
            f"{size} appended in raw batches, flushed",
            appended,
            "records/s",
            target=cached,
            yardstick="Kafka's client, page cache only",
            yardstick_value=cached,
            note=f"{appended / cached:.2f} times",
        ),
        Figure(
            f"{size} read back raw, one connection",
            read.per_second / 1e6,
            "MB/s",
            target=2.5 * read_bytes / 1e6,
            yardstick="Kafka's client",
            yardstick_value=read_bytes / 1e6,
            note=f"{read.offsets / read.seconds:,.0f} records/s against {read_records:,.0f}",
        ),
    ]
