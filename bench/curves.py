"""`python -m bench.curves [CURVE…]`: what one request costs while one thing grows, and why it does.

python -m bench.curves                              all curves, small
python -m bench.curves partitions --most 10000      one of them, further
python -m bench.curves --json FILE                  and the points for the page

Each point is the processor time of the service for one request beside the rate at which requests
were answered: the first says what grows, the second what a client sees of it on this machine.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from rich.console import Console
from rich.table import Table

from app.client.connection import Connection, topic_path
from bench.crowd import Crowd, run_crowd
from bench.documents import write_document
from bench.figures import parse_measures
from bench.load import post
from bench.measures import Bench, Loaded
from bench.memory import processor_seconds
from demo.children import Server, serve_arguments
from engine.records.builder import build_batch

_JSON: Final = "application/json"
_BATCHES: Final = "application/vnd.kafka.recordbatch.v2"
_RECORD: Final = b'{"records":[{"key":"AA","value":{"flight":1141,"arr_delay":33}}]}'
_SEGMENT_BYTES: Final = 64 * 1024
_FILLING_BYTES: Final = 1_000_000
_USUAL_BATCH_BYTES: Final = 10_000
_SMALL_READ_BYTES: Final = 1_000
_PLACES: Final = 32
_COMMITS: Final = 5


class Point(msgspec.Struct, frozen=True):
    """One place of a curve: requests a second, and what one of them takes of a processor."""

    x: int
    per_second: float
    cost_us: float


class Curve(msgspec.Struct, frozen=True):
    """What was measured while `grows` did; `work` is what one request is."""

    name: str
    grows: str
    work: str
    points: list[Point]


Measure = Callable[[Bench, int], Point]


def _of(x: int, loaded: Loaded) -> Point:
    return Point(x, loaded.per_second, loaded.processor_s / loaded.result.sent * 1e6)


def connections(bench: Bench, count: int) -> Point:
    """One JSON record a request, flushed."""
    topic = f"connections-{count}"
    bench.create_topic(topic, partitions=1)
    return _of(count, bench.load([post(topic_path(topic, 0, "records"), _JSON, _RECORD)], count))


def bodies(bench: Bench, size_bytes: int) -> Point:
    """One raw batch a request, flushed, from 16 connections, to 4 partitions."""
    topic = f"bodies-{size_bytes}"
    bench.create_topic(topic, partitions=4)
    batch = _batch(size_bytes)
    requests = [post(topic_path(topic, number, "batches"), _BATCHES, batch) for number in range(4)]
    return _of(size_bytes, bench.load(requests, 16))


def partitions(bench: Bench, count: int) -> Point:
    """One JSON record a request, flushed, from 64 connections, each to a partition of its own."""
    topic = f"partitions-{count}"
    bench.create_topic(topic, partitions=count)
    chosen = random.Random(1).sample(range(count), min(count, 64))
    paths = [topic_path(topic, number, "records") for number in chosen]
    return _of(count, bench.load([post(path, _JSON, _RECORD) for path in paths], 64))


def segments(bench: Bench, count: int) -> Point:
    """A read of a kilobyte, by 32 connections, each at a place of its own in so many segments."""
    topic = f"segments-{count}"
    bench.create_topic(topic, partitions=1, segment_bytes=str(_SEGMENT_BYTES))
    return _of(count, _small_reads(bench, topic, _batch(_SEGMENT_BYTES - 1_000), count))


def log_megabytes(bench: Bench, megabytes: int) -> Point:
    """A read of a kilobyte, by 32 connections, each at a place of its own in so many megabytes."""
    topic = f"log-{megabytes}"
    bench.create_topic(topic, partitions=1)
    batches = _batch(_USUAL_BATCH_BYTES) * (_FILLING_BYTES // _USUAL_BATCH_BYTES)
    return _of(megabytes, _small_reads(bench, topic, batches, megabytes))


def waiting_readers(bench: Bench, count: int) -> Point:
    """A commit of one record, until it is with all who wait for it by long polls."""
    topic = f"waiting-{count}"
    bench.create_topic(topic, partitions=1)
    address = urlsplit(bench.service.url)
    assert address.hostname is not None
    assert address.port is not None
    before_s = processor_seconds(bench.service.pid)
    result = run_crowd(
        Crowd(
            host=address.hostname,
            port=address.port,
            pid=bench.service.pid,
            path=topic_path(topic, 0),
            polls=count,
            tails=0,
            commits=_COMMITS,
        )
    )
    used_s = processor_seconds(bench.service.pid) - before_s
    slowest = sorted(max(polls) for polls in result.polls_s)
    return Point(count, 1 / slowest[len(slowest) // 2], used_s / (_COMMITS + 1) / count * 1e6)


CURVES: Final[Mapping[str, tuple[str, Measure, Sequence[int]]]] = {
    "connections": ("connections", connections, (1, 4, 16, 64, 256)),
    "bodies": ("bytes of a body", bodies, (100, 1_000, 10_000, 100_000, 1_000_000)),
    "partitions": ("partitions", partitions, (1, 10, 100, 1_000)),
    "segments": ("segments", segments, (1, 10, 100, 1_000)),
    "log": ("megabytes of log", log_megabytes, (10, 100, 1_000)),
    "waiting": ("waiting readers", waiting_readers, (1, 10, 100, 1_000)),
}


def measure(name: str, folder: Path, seconds: float, most: int | None) -> Curve:
    """Measure a curve, against a service of its own; `most` goes on beyond its last point."""
    grows, point, usual = CURVES[name]
    places = [x for x in usual if most is None or x <= most]
    if most is not None and most not in places:
        places.append(most)
    with (
        Server(serve_arguments(folder / name), folder / f"{name}.txt") as service,
        Connection(service.url) as connection,
    ):
        bench = Bench(service, connection, folder, seconds)
        work = (point.__doc__ or "").rstrip(".")
        return Curve(name, grows, work, [point(bench, x) for x in places])


def show(curve: Curve, console: Console) -> None:
    """Print the points as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold", title=curve.work)
    for heading in (curve.grows, "per second", "µs of processor each"):
        table.add_column(heading, justify="right")
    for point in curve.points:
        table.add_row(f"{point.x:,}", f"{point.per_second:,.0f}", f"{point.cost_us:,.1f}")
    console.print(table)


def main() -> None:
    """Measure the curves that were asked for, all of them without a name."""
    parser = argparse.ArgumentParser(prog="python -m bench.curves", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the points here, too")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each point")
    parser.add_argument("--most", type=int, help="the last point of each curve")
    arguments = parse_measures(parser, CURVES)
    console = Console(stderr=True)
    curves = []
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=arguments.folder) as folder:
        for name in arguments.measures:
            with console.status(f"measuring: {name}"):
                curve = measure(name, Path(folder), arguments.seconds, arguments.most)
            show(curve, Console(highlight=False))
            curves.append(curve)
    if arguments.json:
        write_document({"curves": curves}, arguments.json)


def _batch(size_bytes: int) -> bytes:
    """Return a batch of about so many bytes, of records of 140 bytes or one smaller one."""
    value = random.Random(1).randbytes(min(140, max(1, size_bytes - 80)))
    count = max(1, size_bytes // (len(value) + 10))
    return bytes(build_batch([(1_700_000_000_000, None, value, ())] * count))


def _append(bench: Bench, topic: str, batch: bytes) -> int:
    """Append a batch without waiting for the disk; return the log end."""
    path = topic_path(topic, 0, "batches") + "?acks=1"
    return int(bench.ask("POST", path, _BATCHES, batch)["log_end_offset"])


def _small_reads(bench: Bench, topic: str, batch: bytes, times: int) -> Loaded:
    """Fill a log with a batch so many times, and read all over it; the same places in every run."""
    end_offset = 0
    for _ in range(times):
        end_offset = _append(bench, topic, batch)
    chance = random.Random(1)
    path = topic_path(topic, 0, "batches")
    reads = [
        f"GET {path}?offset={chance.randrange(end_offset)}&max_bytes={_SMALL_READ_BYTES} HTTP/1.1"
        f"\r\nHost: bench\r\n\r\n".encode()
        for _ in range(_PLACES)
    ]
    return bench.load(reads, _PLACES)


if __name__ == "__main__":
    main()
