"""Other logs that speak HTTP and sync before they answer: how each is started and what it takes."""

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
_STREAM: Final = "bench"
_S2_LITE: Final = "0.43.4"
_STREAMS: Final = "@durable-streams/server"
_STREAMS_VERSION: Final = "0.3.7"
_SERVE_STREAMS: Final = """\
const { DurableStreamTestServer } = require(process.argv[1]);
new DurableStreamTestServer({ port: Number(process.argv[2]), dataDir: process.argv[3] }).start();
"""


@dataclass(frozen=True, slots=True)
class HttpLog:
    """A log that runs, and how JSON values are appended to it."""

    name: str
    program: Program
    path: str
    headers: dict[str, str]
    body: Callable[[Sequence[bytes]], bytes]

    def append(self, values: Sequence[bytes]) -> bytes:
        """Return the whole request."""
        return post(self.path, _JSON, self.body(values), self.headers)


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
        stream = {"stream": _STREAM}
        httpx.post(f"{url}/v1/streams", json=stream, headers=basin).raise_for_status()
        path = f"/v1/streams/{_STREAM}/records"
        yield HttpLog(f"s2-lite {_S2_LITE}", program, path, basin, strings)


@contextmanager
def durable_streams(folder: Path) -> Iterator[HttpLog]:
    """Run the Node server of Durable Streams on a folder; it syncs a file before it answers."""
    (port,) = free_ports(1)
    node = shutil.which("node")
    if node is None:
        raise SystemExit("node is needed to run the server of Durable Streams")
    package = node_package(_STREAMS, _STREAMS_VERSION)
    url = f"http://127.0.0.1:{port}"
    arguments = ["-e", _SERVE_STREAMS, str(package), str(port), str(folder / "streams")]
    with Program([node, *arguments], folder / "streams.txt", url) as program:
        program.wait_for("/")
        headers = {"Content-Type": _JSON}
        httpx.put(f"{url}/{_STREAM}", headers=headers).raise_for_status()
        yield HttpLog(f"durable-streams {_STREAMS_VERSION}", program, f"/{_STREAM}", {}, array)
