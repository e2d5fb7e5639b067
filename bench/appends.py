"""Appends: what is measured of each form of them, beside yardsticks in the same rounds."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlsplit

from app.client.connection import topic_path
from bench.download import Download, run_download
from bench.figures import Figure
from bench.load import post
from bench.target import Bench, Loaded
from demo.children import Server
from engine.records.builder import build_batch

_JSON: Final = "application/json"
_NDJSON: Final = "application/x-ndjson"
_BATCHES: Final = "application/vnd.kafka.recordbatch.v2"
_PARTITIONS: Final = 4
_VALUE_BYTES: Final = 150
_LARGE_VALUE_BYTES: Final = 980  # of a record of 1,000 bytes, or a few less
_RECORDS: Final = 1_000
_RECORDS_OF_64_KIB: Final = 403  # with a value of 150 bytes
_BATCH_BYTES: Final = 64 * 1024
_MB: Final = 1_000_000
_ROUNDS: Final = 3  # in turn with the yardstick, so that a busy moment hits both
_DD_BLOCKS: Final = 4_096  # 256 MiB
_ROUTE: Final = "empty FastAPI route"
_BARE: Final = "bare ASGI application"
_FILE: Final = "append and flush, nothing else"
_OF_BARE: Final = 0.6  # of an application that does nothing
_OF_DD: Final = 0.8
_OF_DD_SMALL: Final = 0.5

# What is asked for at one connection, at 64 and in bodies of 1,000, of what an application did that
# appends and flushes and nothing else where that was asked: 3,900/s, 30,700/s and 1.2 M records/s.
_OF_DURABLE_ALONE: Final = 3_000 / 3_900
_OF_DURABLE: Final = 25_000 / 30_700
_OF_DURABLE_BODIES: Final = 900_000 / 1_200_000


@dataclass(frozen=True, slots=True)
class Rounds:
    """The same load several times, in turn with others: its median stands for it."""

    by_rate: Sequence[Loaded]

    @property
    def median(self) -> Loaded:
        return self.by_rate[len(self.by_rate) // 2]

    @property
    def per_second(self) -> float:
        return self.median.per_second

    @property
    def note(self) -> str:
        """Return what one request took, and how far the rounds lie apart."""
        slowest, fastest = self.by_rate[0].per_second, self.by_rate[-1].per_second
        return f"{self.median.note}; {len(self.by_rate)} rounds, {slowest:,.0f} to {fastest:,.0f}/s"


def rounds_of(loads: Sequence[Loaded]) -> Rounds:
    """Return the rounds of one load."""
    return Rounds(sorted(loads, key=lambda loaded: loaded.per_second))


@dataclass(frozen=True, slots=True)
class Yardstick:
    """The same load on something that does less, and the share of its rate that is asked for."""

    name: str
    rounds: Rounds
    share: float


def single(bench: Bench) -> list[Figure]:
    """One JSON record a request, flushed, beside applications that do less with the body."""
    bench.create_topic("single", partitions=1)
    record = b'{"records":[{"key":"AA","value":%s}]}' % json_value(random.Random(1))
    elsewhere = [post("/empty", _JSON, record)]
    into_the_log = [post(topic_path("single", 0, "records"), _JSON, record)]
    with (
        Server(["bench.yardstick"], bench.folder / "yardstick.txt") as empty,
        Server(["bench.yardstick", "bare"], bench.folder / "bare.txt") as bare,
        _durable(bench) as durable,
    ):
        rounds = [
            (
                bench.load(elsewhere, 64, empty),
                bench.load(elsewhere, 64, bare),
                bench.load(elsewhere, 64, durable),
                bench.load(into_the_log, 64),
                bench.load(elsewhere, 1, durable),
                bench.load(into_the_log, 1),
            )
            for _ in range(_ROUNDS)
        ]
    route, app, file, many, one_file, one = (rounds_of(each) for each in zip(*rounds, strict=True))
    half = bench.load(into_the_log, 64, rate_per_s=many.per_second / 2).result
    unhurried = f"at half that rate p50 {half.p50_ms:.1f} ms, p99 {half.p99_ms:.1f} ms, p99.9 "
    unhurried += f"{half.p999_ms:.1f} ms, each from when it was due"
    name = "JSON records one by one, flushed"
    return [
        _beside(f"{name}, 64 connections", many, Yardstick(_ROUTE, route, 1.0), unhurried),
        _beside(f"{name}, 64 connections, bare", many, Yardstick(_BARE, app, _OF_BARE)),
        _beside(f"{name}, 64 connections, file", many, Yardstick(_FILE, file, _OF_DURABLE)),
        _beside(f"{name}, 1 connection", one, Yardstick(_FILE, one_file, _OF_DURABLE_ALONE)),
    ]


def _durable(bench: Bench) -> Server:
    """Return the application that appends to a file, flushes and does nothing else."""
    file = bench.folder / "durable.bin"
    return Server(["bench.yardstick", "durable", str(file)], bench.folder / "durable.txt")


def _beside(name: str, loaded: Rounds, yardstick: Yardstick, more: str = "") -> Figure:
    """Return the rate of requests beside its yardstick."""
    idle = yardstick.rounds
    return Figure(
        name,
        loaded.per_second,
        "requests/s",
        target=yardstick.share * idle.per_second,
        yardstick=yardstick.name,
        yardstick_value=idle.per_second,
        note="; ".join(filter(None, (loaded.note, more, f"the yardstick {idle.note}"))),
    )


def ndjson(bench: Bench) -> list[Figure]:
    """NDJSON, 1,000 records of 150-byte values a request, flushed."""
    bench.create_topic("ndjson")
    chance = random.Random(2)
    lines = [b'{"key":"key-%d","value":%s}' % (n % 97, json_value(chance)) for n in range(_RECORDS)]
    body = b"\n".join(lines)
    paths = [topic_path("ndjson", partition, "records") for partition in range(_PARTITIONS)]
    with _durable(bench) as durable:
        rounds = [
            (
                bench.load([post("/empty", _NDJSON, body)], 8, durable),
                bench.load([post(path, _NDJSON, body) for path in paths], 8),
            )
            for _ in range(_ROUNDS)
        ]
    file, loaded = (rounds_of(each) for each in zip(*rounds, strict=True))
    name = "NDJSON, 1,000 records a request, flushed, 8 connections"
    return [
        Figure(
            name,
            loaded.per_second * _RECORDS,
            "records/s",
            target=900_000,
            note=f"{loaded.per_second * len(body) / _MB:,.0f} MB/s of NDJSON; {loaded.note}",
        ),
        _beside(f"{name}, file", loaded, Yardstick(_FILE, file, _OF_DURABLE_BODIES)),
    ]


def raw(bench: Bench) -> list[Figure]:
    """Raw batches, flushed, beside `dd` on the same disk; then read back."""
    bench.create_topic("raw")
    paths = [topic_path("raw", partition, "batches") for partition in range(_PARTITIONS)]
    chance = random.Random(3)
    small = batch_of([json_value(chance)] * _RECORDS_OF_64_KIB)
    large = batch_of([chance.randbytes(_LARGE_VALUE_BYTES) for _ in range(_RECORDS)])
    of_small, of_large = ([post(path, _BATCHES, one) for path in paths] for one in (small, large))
    rounds = [
        (
            _dd_rate(bench.folder / f"dd-{index}.bin", _DD_BLOCKS),
            bench.load(of_small, 64),
            bench.load(of_large, 4),
        )
        for index in range(_ROUNDS)
    ]
    dd_rates, many, few = zip(*rounds, strict=True)
    dd_rate = median(dd_rates)
    address = urlsplit(bench.service.url)
    read = run_download(
        Download(address.hostname or "", address.port or 0, paths[0], bench.seconds)
    )
    name = "raw batches of 64 KiB, flushed, 64 connections"
    large_name = "raw batches of 1 MB, records of 1,000 bytes, flushed, 4 connections"
    return [
        _beside_dd(name, rounds_of(many), len(small), dd_rate, _OF_DD_SMALL),
        _beside_dd(large_name, rounds_of(few), len(large), dd_rate, _OF_DD),
        Figure("raw batches read, one connection", read.per_second / _MB, "MB/s", target=2_000),
    ]


def _beside_dd(name: str, loaded: Rounds, body_bytes: int, dd_rate: float, share: float) -> Figure:
    return Figure(
        name,
        loaded.per_second * body_bytes / _MB,
        "MB/s",
        target=share * dd_rate,
        yardstick="dd bs=64k conv=fdatasync",
        yardstick_value=dd_rate,
        note=loaded.note,
    )


def json_value(chance: random.Random) -> bytes:
    """Return a JSON value of 150 bytes that says something, and that no two records share."""
    shell = b'{"flight":%d,"origin":"JFK","delay":%d,"text":"%s"}'
    numbers = (chance.randrange(1_000, 10_000), chance.randrange(10, 100))
    text = chance.randbytes(_VALUE_BYTES).hex()[: _VALUE_BYTES - len(shell % (*numbers, b""))]
    value = shell % (*numbers, text.encode())
    assert len(value) == _VALUE_BYTES
    return value


def batch_of(values: Iterable[bytes]) -> bytes:
    """Return an uncompressed batch of the values."""
    now_ms = int(time.time() * 1000)
    return bytes(build_batch([(now_ms, b"key", value, []) for value in values]))


def _dd_rate(target: Path, blocks: int) -> float:
    """Return MB/s of what `dd` writes and flushes.

    The file stays: a host might take the memory back that it has in the page cache.
    """
    os.sync()
    started = time.perf_counter()
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={target}", "bs=64k", f"count={blocks}", "conv=fdatasync"],
        check=True,
        capture_output=True,
    )
    seconds = time.perf_counter() - started
    return blocks * _BATCH_BYTES / _MB / seconds
