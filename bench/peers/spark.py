"""Spark's own Kafka source against ours: the same batches, the same PySpark, in turn."""

from __future__ import annotations

import os
import statistics
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from app.client.connection import topic_path
from bench.figures import Figure
from bench.peers.kafka import Broker
from bench.peers.packages import jars_of, pyspark_python
from bench.peers.values import write_values
from bench.target import Bench

_TOPIC: Final = "spark"
_PARTITIONS: Final = 4
_SESSIONS: Final = 5  # whose first query is measured
_REQUEST_BYTES: Final = 600 << 10
_REQUEST_BATCHES: Final = 5  # of one producer, as Kafka's broker recognises that many
_LOG_OVERHEAD_BYTES: Final = 12
_RECORDS_COUNT_POSITION: Final = 57
_REPOSITORY: Final = Path(__file__).parents[2]


class _Query(msgspec.Struct):
    wall_s: float
    spark_s: float
    server_s: float

    @property
    def processor_s(self) -> float:
        return self.spark_s + self.server_s


class _Report(msgspec.Struct):
    first: list[_Query]
    noop: list[_Query]
    parquet: list[_Query]


@dataclass(frozen=True, slots=True)
class _Source:
    """A log, and the format that reads it."""

    format: str
    options: Mapping[str, str]
    server_pid: int
    jars: Path | None = None


def spark(bench: Bench, records: int) -> list[Figure]:
    """Read the records with either source, into nothing and into Parquet, and once all cold."""
    with Broker(jars_of("kafka"), bench.folder) as broker:
        broker.create_topic(_TOPIC, _PARTITIONS)
        broker.produce(_TOPIC, write_values(bench.folder), records)
        bench.create_topic(_TOPIC, _PARTITIONS)
        copied = sum(_copy(broker, bench, partition) for partition in range(_PARTITIONS))
        if copied != records:
            raise SystemExit(f"{copied} of {records} records were copied from Kafka's segments")
        theirs = _Source(
            "kafka", {"kafka.bootstrap.servers": broker.address}, broker.pid, jars_of("spark")
        )
        here = _Source("tidelog", {"url": bench.service.url}, bench.service.pid)
        kafka, ours = _report(bench.folder, theirs), _report(bench.folder, here)
        for _ in range(_SESSIONS - 1):  # in turn, so that a busy moment hits both
            kafka.first += _report(bench.folder, theirs, runs=0).first
            ours.first += _report(bench.folder, here, runs=0).first
    return [
        _figure("Spark into noop", ours.noop, kafka.noop, records, times=2.0),
        _figure("Spark into Parquet", ours.parquet, kafka.parquet, records, times=1.4),
        _figure("Spark's first query", ours.first, kafka.first, records, times=1.5),
    ]


def _copy(broker: Broker, bench: Bench, partition: int) -> int:
    """Append the batches of the broker's segment as they are; return how many records they hold."""
    address = urlsplit(bench.service.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
    headers = {"Content-Type": "application/vnd.kafka.recordbatch.v2"}
    records = 0
    for count, body in requests_of(bytearray(broker.segment(_TOPIC, partition).read_bytes())):
        path = topic_path(_TOPIC, partition, "batches")
        connection.request("POST", path, body=body, headers=headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 201:
            raise SystemExit(f"the service refused a batch: {response.status} {answer!r}")
        records += count
    connection.close()
    return records


def requests_of(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """Cut a log file into requests of whole batches, with the offset 0 that a client's has."""
    start = position = records = batches = 0
    while position + _LOG_OVERHEAD_BYTES < len(data):
        _, length = struct.unpack_from(">qi", data, position)
        if length == 0:  # preallocated
            break
        struct.pack_into(">q", data, position, 0)
        records += struct.unpack_from(">i", data, position + _RECORDS_COUNT_POSITION)[0]
        position += _LOG_OVERHEAD_BYTES + length
        batches += 1
        if position - start >= _REQUEST_BYTES or batches == _REQUEST_BATCHES:
            yield records, bytes(data[start:position])
            start, records, batches = position, 0, 0
    if position > start:
        yield records, bytes(data[start:position])


def _report(folder: Path, source: _Source, *, runs: int = 3) -> _Report:
    """Run one session in the environment of the peers; `runs` are those after the first query."""
    command = [str(pyspark_python()), "-m", "bench.peers.spark_reads", source.format]
    for name, value in {"subscribe": _TOPIC, **source.options}.items():
        command += ["--option", f"{name}={value}"]
    command += ["--server-pid", str(source.server_pid), "--lake", str(folder / "lake")]
    command += ["--jars", str(source.jars)] if source.jars else []
    command += ["--runs", str(runs)]
    environment = {**os.environ, "PYTHONPATH": str(_REPOSITORY)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"Spark with {source.format} failed:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=_Report)


def _figure(
    name: str, ours: list[_Query], kafka: list[_Query], records: int, *, times: float
) -> Figure:
    here, there = _rate(ours, records), _rate(kafka, records)
    ours_s, kafka_s = (statistics.median(q.processor_s for q in each) for each in (ours, kafka))
    note = (
        f"{here / there:.2f} times Kafka's source; of processor {ours_s / records * 1e9:,.0f} ns a "
        f"record against {kafka_s / records * 1e9:,.0f}, with service and broker: "
        f"{kafka_s / ours_s:.2f} times; median of {len(ours)}"
    )
    return Figure(
        f"{name}, two local cores",
        here,
        "records/s",
        target=times * there,
        yardstick="Spark's Kafka source",
        yardstick_value=there,
        note=note,
    )


def _rate(queries: list[_Query], records: int) -> float:
    return records / statistics.median(query.wall_s for query in queries)
