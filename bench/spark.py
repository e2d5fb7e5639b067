"""The Spark side: records of 150 bytes out of the log, into nothing and into Parquet."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from app.client.connection import topic_path
from bench.figures import Figure
from bench.target import Bench
from engine.records.builder import build_batch
from pyspark_tidelog.session import local_conf, local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_TOPIC: Final = "spark"
_PARTITIONS: Final = 4
_RECORDS: Final = 4_000_000
_RECORDS_A_BATCH: Final = 400  # about 64 KiB
_BATCHES_A_REQUEST: Final = 10
_VALUE_BYTES: Final = 150
_CORES: Final = 2
_RUNS: Final = 3


def spark(bench: Bench) -> list[Figure]:
    """Read four million records of 150 bytes with two local cores, service and JVM among them."""
    bench.create_topic(_TOPIC)
    fill(bench, _TOPIC, _RECORDS, _PARTITIONS)
    lake = bench.folder / "lake"

    def to_parquet(records: DataFrame) -> None:
        records.write.mode("overwrite").parquet(str(lake))

    with local_session(local_conf(cores=_CORES)) as session:
        reader = session.read.format("tidelog").options(url=bench.service.url, subscribe=_TOPIC)
        first = _seconds(to_nowhere, reader.load())
        _seconds(to_parquet, reader.load())  # the JVM compiles what is hot
        into_noop = [_seconds(to_nowhere, reader.load()) for _ in range(_RUNS)]
        into_parquet = [_seconds(to_parquet, reader.load()) for _ in range(_RUNS)]
    shutil.rmtree(lake)
    return [
        _figure("Spark into noop, two local cores", into_noop, target=1_200_000),
        _figure("Spark into Parquet, two local cores", into_parquet, target=600_000),
        Figure("Spark's first query of a session", first, "s", target=15, is_ceiling=True),
    ]


def to_nowhere(records: DataFrame) -> None:
    """Read everything and keep nothing."""
    records.write.format("noop").mode("overwrite").save()


def _seconds(write: Callable[[DataFrame], None], records: DataFrame) -> float:
    started = time.perf_counter()
    write(records)
    return time.perf_counter() - started


def _figure(name: str, seconds: list[float], *, target: float) -> Figure:
    rates = sorted(_RECORDS / value for value in seconds)
    note = f"median of {len(rates)}, {rates[0]:,.0f} to {rates[-1]:,.0f}"
    return Figure(name, statistics.median(rates), "records/s", target=target, note=note)


def fill(bench: Bench, topic: str, records: int, partitions: int) -> None:
    """Append records in requests of ten batches, to one partition after the other."""
    address = urlsplit(bench.service.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
    headers = {"Content-Type": "application/vnd.kafka.recordbatch.v2"}
    bodies = list(_bodies())
    for number in range(records // (_RECORDS_A_BATCH * _BATCHES_A_REQUEST)):
        path = topic_path(topic, number % partitions, "batches")
        connection.request("POST", path, body=bodies[number % len(bodies)], headers=headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 201:
            raise SystemExit(f"the service refused a batch: {response.status} {answer!r}")
    connection.close()


def _bodies() -> Iterator[bytes]:
    """Yield request bodies, with more different values than a dictionary of Parquet holds."""
    chance = random.Random(4)
    now_ms = int(time.time() * 1000)
    for _ in range(20):
        batches = [
            build_batch(
                [
                    (now_ms, b"key-%d" % (n % 97), _value(chance), [])
                    for n in range(_RECORDS_A_BATCH)
                ]
            )
            for _ in range(_BATCHES_A_REQUEST)
        ]
        yield b"".join(batches)


def _value(chance: random.Random) -> bytes:
    """Return a flight as JSON, 150 bytes."""
    flight = b'{"year":2013,"month":%d,"day":%d,"carrier":"%s","flight":%d,"tailnum":"N%05d"' % (
        chance.randrange(1, 13),
        chance.randrange(1, 29),
        chance.choice((b"UA", b"AA", b"B6", b"DL")),
        chance.randrange(10_000),
        chance.randrange(100_000),
    )
    delays = b',"origin":"JFK","dest":"%s","arr_delay":%d,"distance":%d}' % (
        chance.choice((b"IAH", b"MIA", b"BQN", b"SFO")),
        chance.randrange(-30, 300),
        chance.randrange(100, 5_000),
    )
    return (flight + delays).ljust(_VALUE_BYTES)
