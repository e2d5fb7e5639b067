"""Appends of JSON over HTTP, flushed before the answer: ours beside another log that speaks it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from app.client.connection import topic_path
from bench.appends import json_value, rounds_of
from bench.figures import Figure
from bench.load import post
from bench.memory import resident_bytes
from bench.peers.packages import crate_program, node_package
from bench.peers.program import Program, free_ports
from bench.target import Bench

_JSON: Final = "application/json"
_BASIN: Final = "tidelog-bench"

LOGS: Final = 64
"""How many logs each service has."""

_STREAMS: Final = [f"bench-{number}" for number in range(LOGS)]
_S2_LITE: Final = "0.43.4"
_RUST_STREAMS: Final = "0.1.5"
_NODE_PACKAGE: Final = "@durable-streams/server"
_NODE_STREAMS: Final = "0.3.7"
_SERVE_STREAMS: Final = """\
const { DurableStreamTestServer } = require(process.argv[1]);
new DurableStreamTestServer({ port: Number(process.argv[2]), dataDir: process.argv[3] }).start();
"""


@dataclass(frozen=True, slots=True)
class HttpLog:
    """A running service with `LOGS` logs, and how JSON values are appended to them."""

    name: str
    program: Program
    paths: Sequence[str]
    """One for each log."""
    headers: dict[str, str]
    body: Callable[[Sequence[bytes]], bytes]

    def appends(self, values: Sequence[bytes], logs: int) -> list[bytes]:
        """Return the whole request that appends the values, for each of the first `logs` logs."""
        body = self.body(values)
        return [post(path, _JSON, body, self.headers) for path in self.paths[:logs]]


def strings(values: Sequence[bytes]) -> bytes:
    """Return the values as S2 takes them: a record is a string."""
    records = [{"body": value.decode()} for value in values]
    return json.dumps({"records": records}, separators=(",", ":")).encode()


def array(values: Sequence[bytes]) -> bytes:
    """Return the values as Durable Streams takes several of them."""
    return b"[%s]" % b",".join(values)


@contextmanager
def s2_lite(folder: Path) -> Iterator[HttpLog]:
    """Run S2's own open server on a folder; it syncs its write-ahead log before it answers."""
    root = folder / "s2"
    root.mkdir()
    (port,) = free_ports(1)
    server = str(crate_program("s2-lite", _S2_LITE, "server"))
    url = f"http://127.0.0.1:{port}"
    command = [server, "--port", str(port), "--local-root", str(root), "--no-dashboard"]
    with Program(command, folder / "s2.txt", url) as program:
        program.wait_for("/health")
        basin = {"s2-basin": _BASIN}
        httpx.post(f"{url}/v1/basins", json={"basin": _BASIN}).raise_for_status()
        for stream in _STREAMS:
            made = httpx.post(f"{url}/v1/streams", json={"stream": stream}, headers=basin)
            made.raise_for_status()
        paths = [f"/v1/streams/{stream}/records" for stream in _STREAMS]
        yield HttpLog(f"s2-lite {_S2_LITE}", program, paths, basin, strings)


@contextmanager
def durable_streams_rust(folder: Path) -> Iterator[HttpLog]:
    """Run the Rust server of Durable Streams; it syncs a write-ahead log before it answers."""
    (port,) = free_ports(1)
    server = crate_program("durable-streams", _RUST_STREAMS, "durable-streams-server")
    command = [str(server), "--port", str(port), "--data-dir", str(folder / "streams")]
    with _streams(command, folder / "streams.txt", port) as (program, paths):
        yield HttpLog(f"durable-streams (Rust) {_RUST_STREAMS}", program, paths, {}, array)


@contextmanager
def durable_streams_node(folder: Path) -> Iterator[HttpLog]:
    """Run the Node server of Durable Streams; it syncs a file for each stream before it answers."""
    (port,) = free_ports(1)
    node = shutil.which("node")
    if node is None:
        raise SystemExit("node is needed to run the server of Durable Streams")
    package = node_package(_NODE_PACKAGE, _NODE_STREAMS)
    command = [node, "-e", _SERVE_STREAMS, str(package), str(port), str(folder / "streams")]
    with _streams(command, folder / "streams.txt", port) as (program, paths):
        yield HttpLog(f"durable-streams (Node) {_NODE_STREAMS}", program, paths, {}, array)


@contextmanager
def _streams(command: list[str], log: Path, port: int) -> Iterator[tuple[Program, Sequence[str]]]:
    """Run a server of Durable Streams with empty JSON streams; yield it with their paths."""
    paths = [f"/{stream}" for stream in _STREAMS]
    with Program(command, log, f"http://127.0.0.1:{port}") as program:
        program.wait_for("/")
        for path in paths:
            made = httpx.put(program.url + path, headers={"Content-Type": _JSON})
            made.raise_for_status()
        yield program, paths


_TOPIC: Final = "http"
_PARTITIONED: Final = "partitions"
_PARTITIONS: Final = 1_000
_MANY_CONNECTIONS: Final = 64
_ROUNDS: Final = 3
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Shape:
    """A load, and the share of the Rust server's rate that is asked for."""

    records: int
    connections: int
    logs: int
    of_rust: float

    @property
    def name(self) -> str:
        connections = f"{self.connections} connection{'s' * (self.connections > 1)}"
        logs = f", {self.logs} logs" if self.logs > 1 else ""
        return f"JSON, {self.records:,} a request, {connections}{logs}, flushed"


_ONE_LOG: Final = _Shape(1, _MANY_CONNECTIONS, 1, of_rust=0.65)
_MANY_LOGS: Final = _Shape(1, _MANY_CONNECTIONS, LOGS, of_rust=0.45)
_SHAPES: Final = (
    _Shape(1, 1, 1, of_rust=0.8),
    _ONE_LOG,
    _MANY_LOGS,
    _Shape(1_000, 8, 1, of_rust=0.6),
)
_OF_ONE_LOG: Final = 0.7
_OF_ONE_PARTITION: Final = 0.5


def rust(bench: Bench, records: int) -> list[Figure]:  # noqa: ARG001 - loads last a time
    """Measure beside the Rust server of Durable Streams; it stores values and nothing else."""
    figures = _beside(bench, durable_streams_rust, lambda shape: shape.of_rust)
    one, many = (figures[_SHAPES.index(shape)] for shape in (_ONE_LOG, _MANY_LOGS))
    name = f"{LOGS} logs ÷ one log, {_MANY_CONNECTIONS} connections"
    assert one.yardstick_value
    assert many.yardstick_value
    theirs = f"{one.yardstick} {many.yardstick_value / one.yardstick_value:.0%}"
    logs = _percent(name, many.value / one.value, _OF_ONE_LOG, theirs)
    return [*figures, logs, _partitions_in_turn(bench)]


def s2(bench: Bench, records: int) -> list[Figure]:  # noqa: ARG001 - as above
    """Measure beside S2's own server."""
    return _beside(bench, s2_lite, lambda _: 1.0)


def node(bench: Bench, records: int) -> list[Figure]:  # noqa: ARG001 - as above
    """Measure beside the Node server of Durable Streams."""
    return _beside(bench, durable_streams_node, lambda _: 1.0)


def _beside(
    bench: Bench,
    start: Callable[[Path], AbstractContextManager[HttpLog]],
    share_of: Callable[[_Shape], float],
) -> list[Figure]:
    """Append in every shape, in turn with the other log; then compare the peaks of memory."""
    bench.create_topic(_TOPIC, partitions=LOGS)
    with start(bench.folder) as log:
        figures = [_shape(bench, log, shape, share_of(shape)) for shape in _SHAPES]
        return [*figures, _memory(bench, log)]


def _shape(bench: Bench, log: HttpLog, shape: _Shape, share: float) -> Figure:
    chance = random.Random(shape.records)
    values = [json_value(chance) for _ in range(shape.records)]
    body = b'{"records":[%s]}' % b",".join(b'{"value":%s}' % value for value in values)
    paths = [topic_path(_TOPIC, number, "records") for number in range(shape.logs)]
    ours = [post(path, _JSON, body) for path in paths]
    theirs = log.appends(values, shape.logs)
    rounds = [
        (
            bench.load(ours, shape.connections),
            bench.load(theirs, shape.connections, log.program),
        )
        for _ in range(_ROUNDS)
    ]
    here, there = (rounds_of(loads) for loads in zip(*rounds, strict=True))
    ratio = median(one.per_second / other.per_second for one, other in rounds)
    return Figure(
        f"{shape.name}; {log.name}",
        here.per_second * shape.records,
        "records/s",
        target=share * there.per_second * shape.records,
        yardstick=log.name,
        yardstick_value=there.per_second * shape.records,
        note=f"{ratio:.2f} in the median of the rounds; {here.note}; {log.name} {there.note}",
    )


def _partitions_in_turn(bench: Bench) -> Figure:
    """Append to each of many partitions in turn, and as often to one of them."""
    bench.create_topic(_PARTITIONED, partitions=_PARTITIONS)
    body = b'{"records":[{"value":%s}]}' % json_value(random.Random(1))
    paths = [topic_path(_PARTITIONED, number, "records") for number in range(_PARTITIONS)]
    for path in paths:  # the first append to a log creates and opens files
        bench.ask("POST", path, _JSON, body)
    appends = [post(path, _JSON, body) for path in paths]
    rounds = [
        (bench.load(appends, _MANY_CONNECTIONS), bench.load(appends[:1], _MANY_CONNECTIONS))
        for _ in range(_ROUNDS)
    ]
    ratio = median(many.per_second / one.per_second for many, one in rounds)
    many, one = (rounds_of(loads) for loads in zip(*rounds, strict=True))
    name = f"{_PARTITIONS:,} partitions in turn ÷ one, {_MANY_CONNECTIONS} connections"
    note = f"{many.per_second:,.0f} and {one.per_second:,.0f} records/s; {many.note}"
    return _percent(name, ratio, _OF_ONE_PARTITION, note)


def _percent(name: str, ratio: float, target: float, note: str) -> Figure:
    return Figure(name, 100 * ratio, "%", target=100 * target, note=note)


def _memory(bench: Bench, log: HttpLog) -> Figure:
    theirs = resident_bytes(log.program.pid) / _MIB
    return Figure(
        f"memory after these loads, at its peak; {log.name}",
        resident_bytes(bench.service.pid) / _MIB,
        "MiB",
        target=theirs,
        yardstick=log.name,
        yardstick_value=theirs,
        is_ceiling=True,
    )
