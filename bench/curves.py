"""`python -m bench.curves [CURVE…]`: what one request costs while one thing grows, and why it does.

python -m bench.curves                              all curves, small
python -m bench.curves partitions --most 5000       one of them, further
python -m bench.curves --full                       all of them as far as they go
python -m bench.curves --json FILE                  and the points for the page

Each point is the processor time of the service for one request beside the rate at which requests
were answered: the first says what grows, the second what a client sees of it on this machine.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec
from rich.console import Console
from rich.table import Table

from app.client.connection import Connection, Request, topic_path
from bench import stock
from bench.crowd import Crowd, run_crowd
from bench.figures import parse_measures, write_document
from bench.load import post
from bench.memory import processor_seconds
from bench.start import wait_until_ready
from bench.target import Bench, Loaded
from demo.children import Server, serve_arguments
from engine.records.builder import build_batch

_JSON: Final = "application/json"
_BATCHES: Final = "application/vnd.kafka.recordbatch.v2"
_RECORD: Final = b'{"records":[{"key":"AA","value":{"flight":1141,"arr_delay":33}}]}'
_SEGMENT_BYTES: Final = 64 * 1024
_MB: Final = 1_000_000
_USUAL_BATCH_BYTES: Final = 64_000
_SMALL_READ_BYTES: Final = 1_000
_PLACES: Final = 32
_COMMITS: Final = 5

_OTHER_FILES: Final = 500
_FULL_BYTES: Final = 30_000_000_000
"""What the whole length of all curves takes of a disk, and some more."""


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
Prepare = Callable[[Path, int], None]


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
    chosen = random.Random(1).sample(range(count), min(count, 64))
    paths = [topic_path("partitions", number, "records") for number in chosen]
    for path in paths:  # the first append to a log opens what the others find open
        bench.ask("POST", path, _JSON, _RECORD)
    return _of(count, bench.load([post(path, _JSON, _RECORD) for path in paths], 64))


def have_partitions(folder: Path, count: int) -> None:
    """Have the partitions for that curve."""
    stock.have_partitions(folder, "partitions", count)


def segments(bench: Bench, count: int) -> Point:
    """A read of a kilobyte, by 32 connections, each at a place of its own in so many segments."""
    return _of(count, _small_reads(bench, "segments"))


def have_segments(folder: Path, count: int) -> None:
    """Have the segments for that curve, of one batch each."""
    batch = _batch(_SEGMENT_BYTES - 1_000)
    size_bytes = count * len(batch)
    stock.have_bytes(folder, "segments", batch, size_bytes, segment_bytes=str(_SEGMENT_BYTES))


def log_megabytes(bench: Bench, megabytes: int) -> Point:
    """A read of a kilobyte, by 32 connections, each at a place of its own in so many megabytes."""
    return _of(megabytes, _small_reads(bench, "log"))


def have_megabytes(folder: Path, megabytes: int) -> None:
    """Have the log for that curve."""
    stock.have_bytes(folder, "log", _batch(_USUAL_BATCH_BYTES), megabytes * _MB)


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


class Course(NamedTuple):
    """What grows along a curve, where points are measured, usually and if asked, and how.

    `prepare` puts what a point needs into the data directory, beside what the last one needed.
    `files_each` is how many open files each of what grows takes at rest, if they may be too many.
    """

    grows: str
    usual: Sequence[int]
    further: Sequence[int]
    point: Measure
    prepare: Prepare = lambda _folder, _place: None
    files_each: int = 0


_DECADES: Final = (1, 10, 100, 1_000)

CURVES: Final[Mapping[str, Course]] = {
    "connections": Course("connections", (1, 4, 16, 64, 256), (), connections),
    "bodies": Course("bytes of a body", (100, 1_000, 10_000, 100_000, _MB), (), bodies),
    "partitions": Course("partitions", _DECADES, (3_000, 10_000), partitions, have_partitions, 1),
    "segments": Course("segments", _DECADES, (3_000, 10_000), segments, have_segments, 1),
    "log": Course(
        "megabytes of log", (10, 100, 1_000), (10_000, 20_000), log_megabytes, have_megabytes
    ),
    "waiting": Course("waiting readers", _DECADES, (5_000,), waiting_readers),
}


def places_of(course: Course, most: int | None, *, full: bool) -> list[int]:
    """Return where to measure: as far as `most` and there, if it is given, else as usual."""
    if full:
        return [*course.usual, *course.further]
    if most is None:
        return list(course.usual)
    return sorted({most, *(x for x in course.usual if x <= most)})


def can_open(files: int) -> bool:
    """Whether a process may have so many files open, and some hundreds for all else."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit == resource.RLIM_INFINITY or files + _OTHER_FILES <= limit


def measure(name: str, folder: Path, seconds: float, places: Sequence[int]) -> Curve:
    """Measure a curve at these places, ascending, each against a service that was just started."""
    course = CURVES[name]
    points = []
    for place in places:
        course.prepare(folder / "log", place)
        with (
            Server(serve_arguments(folder / "log"), folder / "service.txt") as service,
            Connection(service.url) as connection,
            httpx.Client() as client,
        ):
            wait_until_ready(service, client)
            points.append(course.point(Bench(service, connection, folder, seconds), place))
    return Curve(name, course.grows, (course.point.__doc__ or "").rstrip("."), points)


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
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--most", type=int, help="the last point of each curve")
    length.add_argument("--full", action="store_true", help="all points: minutes, 25 GB")
    arguments = parse_measures(parser, CURVES)
    if arguments.full and shutil.disk_usage(arguments.folder).free < _FULL_BYTES:
        parser.error(f"the whole length takes {_FULL_BYTES / 1e9:.0f} GB of disk")
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    console = Console(stderr=True)
    curves = []
    for name in arguments.measures:
        course = CURVES[name]
        wanted = places_of(course, arguments.most, full=arguments.full)
        places = [place for place in wanted if can_open(place * course.files_each)]
        for place in wanted[len(places) :]:
            console.print(f"{place:,} {course.grows} need more open files than {files:,}: left out")
        with (
            tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=arguments.folder) as folder,
            console.status(f"measuring: {name}"),
        ):
            curve = measure(name, Path(folder), arguments.seconds, places)
        show(curve, Console(highlight=False))
        curves.append(curve)
    if arguments.json:
        write_document({"curves": curves}, arguments.json)


def _batch(size_bytes: int) -> bytes:
    """Return a batch of about so many bytes, of records of 140 bytes or one smaller one."""
    value = random.Random(1).randbytes(min(140, max(1, size_bytes - 80)))
    count = max(1, size_bytes // (len(value) + 10))
    return bytes(build_batch([(1_700_000_000_000, None, value, ())] * count))


def _small_reads(bench: Bench, topic: str) -> Loaded:
    """Read all over a log; at the same places in every run."""
    described = bench.connection.json(Request("GET", topic_path(topic, 0, "offsets")))
    end_offset = int(described["log_end_offset"])
    chance = random.Random(1)
    path = topic_path(topic, 0, "batches")
    reads = [
        f"GET {path}?offset={chance.randrange(end_offset)}&max_bytes={_SMALL_READ_BYTES} HTTP/1.1"
        f"\r\nHost: localhost\r\n\r\n".encode()
        for _ in range(_PLACES)
    ]
    return bench.load(reads, _PLACES)


if __name__ == "__main__":
    main()
