"""Other logs that speak HTTP and sync before they answer: how to start and load each of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from bench.load import post
from bench.peers.packages import crate_program, node_package
from bench.peers.program import Program, free_ports

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
