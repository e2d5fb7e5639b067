"""A crowd of readers at the end of one partition, in a process of its own.

Some of them poll long, some tail by server-sent events. Each commit is timed from the moment its
append is sent, the disk included, until a reader has it; pollers ask again at once.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from app.client.connection import topic_path
from bench.figures import Figure
from bench.load import post
from bench.memory import present_bytes
from bench.target import Bench

_TOPIC: Final = "waiting"
_READERS: Final = 1_000  # of either kind
_MIB: Final = 1 << 20


def waiting(bench: Bench) -> list[Figure]:
    """Put the readers at the end of a partition, then commit one record after the other."""
    bench.create_topic(_TOPIC, partitions=1)
    address = urlsplit(bench.service.url)
    crowd = Crowd(
        host=address.hostname or "",
        port=address.port or 0,
        pid=bench.service.pid,
        path=topic_path(_TOPIC, 0),
        polls=_READERS,
        tails=_READERS,
        commits=max(3, round(bench.seconds * 3)),
    )
    return figures_of(run_crowd(crowd))


def figures_of(result: CrowdResult) -> list[Figure]:
    """Return what a crowd takes, and how soon the last one of its readers has a commit."""
    both = zip(result.polls_s, result.tails_s, strict=True)
    commits = [[*polls, *tails] for polls, tails in both]
    middle_ms = _median_ms([statistics.median(commit) for commit in commits])
    count = len(commits[0])
    tails_ms = _median_ms([max(commit) for commit in result.tails_s])
    polls_ms = _median_ms([max(commit) for commit in result.polls_s])
    return [
        Figure(
            f"{count:,} idle readers: long polls and tails",
            result.grown_bytes / _MIB,
            "MiB",
            target=50,
            is_ceiling=True,
            note=f"{result.grown_bytes / count / 1024:.1f} KiB each, socket and all",
        ),
        Figure(
            "a commit is with all readers",
            _median_ms([max(commit) for commit in commits]),
            "ms",
            target=50,
            is_ceiling=True,
            note=(
                "from the append on, its flush included; "
                f"acknowledged after {_median_ms(result.acknowledged_s):.1f} ms, with the median "
                f"reader after {middle_ms:.1f} ms, with all tails after {tails_ms:.1f} ms, with "
                f"all polls after {polls_ms:.1f} ms; "
                f"medians of {len(commits)} commits"
            ),
        ),
    ]


def _median_ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000


_AT_A_TIME: Final = 50  # connections opened together
_PATIENCE_S: Final = 60.0
_SETTLE_S: Final = 1.0
_PAUSE_S: Final = 0.3  # between commits, for the pollers to be back
_RECORD: Final = b'{"records":[{"key":"AA","value":{"flight":1141,"arr_delay":33}}]}'
_ARRIVED: Final = b'"records":[{'
_REFUSED: Final = b"application/problem+json"


class Crowd(msgspec.Struct, frozen=True):
    """How many readers to put at the end of an empty partition of `pid`, and how often to commit.

    The first of the commits is not counted.
    """

    host: str
    port: int
    pid: int
    path: str
    polls: int
    tails: int
    commits: int


class CrowdResult(msgspec.Struct, frozen=True):
    """What the idle crowd takes, and for each commit the seconds until each reader had it."""

    grown_bytes: int
    acknowledged_s: list[float]
    polls_s: list[list[float]]
    tails_s: list[list[float]]


def run_crowd(crowd: Crowd) -> CrowdResult:
    """Run the crowd in another process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.crowd"],
        input=msgspec.msgpack.encode(crowd),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.msgpack.decode(done.stdout, type=CrowdResult)


class _Commit:
    """One commit on its way: who has it, and when it is with everybody."""

    def __init__(self, readers: int) -> None:
        self.left = readers
        self.with_all = asyncio.get_running_loop().create_future()
        self.sent_at = time.perf_counter()

    def arrived(self) -> float:
        self.left -= 1
        if self.left == 0:
            self.with_all.set_result(None)
        return time.perf_counter() - self.sent_at


class _Reader(asyncio.Protocol):
    """One connection that waits for the next commit."""

    def __init__(self, crowd: Crowd, *, polls: bool) -> None:
        self._crowd = crowd
        self._polls = polls
        self._next_offset = 0
        self._transport: asyncio.Transport | None = None
        self.commit: _Commit | None = None
        self.waited_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        self._ask()

    def data_received(self, data: bytes) -> None:
        if _ARRIVED not in data:
            assert _REFUSED not in data, data
            return
        assert self.commit is not None, data
        self.waited_s = self.commit.arrived()
        self._next_offset += 1
        if self._polls:
            self._ask()

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def _ask(self) -> None:
        operation = "records" if self._polls else "tail"
        wait = "&max_wait_ms=60000" if self._polls else ""
        line = f"GET {self._crowd.path}/{operation}?offset={self._next_offset}{wait} HTTP/1.1\r\n"
        assert self._transport is not None
        self._transport.write(line.encode() + b"Host: localhost\r\n\r\n")


class _Appender(asyncio.Protocol):
    """Appends one record at a time."""

    def __init__(self, crowd: Crowd) -> None:
        self._request = post(f"{crowd.path}/records", "application/json", _RECORD)
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 201"), data
        assert self._answered is not None
        self._answered.set_result(None)

    async def append(self) -> float:
        """Append a record; return the seconds until it was acknowledged."""
        assert self._transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        sent_at = time.perf_counter()
        self._transport.write(self._request)
        await self._answered
        return time.perf_counter() - sent_at


async def _watch(crowd: Crowd) -> CrowdResult:
    loop = asyncio.get_running_loop()
    _, appender = await loop.create_connection(lambda: _Appender(crowd), crowd.host, crowd.port)
    before_bytes = present_bytes(crowd.pid)
    polls = await _gather(crowd, crowd.polls, polls=True)
    tails = await _gather(crowd, crowd.tails, polls=False)
    readers = [*polls, *tails]
    await asyncio.sleep(_SETTLE_S)
    grown_bytes = present_bytes(crowd.pid) - before_bytes
    result = CrowdResult(grown_bytes, [], [], [])
    for number in range(crowd.commits + 1):
        commit = _Commit(len(readers))
        for reader in readers:
            reader.commit = commit
        acknowledged_s = await appender.append()
        async with asyncio.timeout(_PATIENCE_S):
            await commit.with_all
        if number > 0:
            result.acknowledged_s.append(acknowledged_s)
            result.polls_s.append([reader.waited_s for reader in polls])
            result.tails_s.append([reader.waited_s for reader in tails])
        await asyncio.sleep(_PAUSE_S)
    for reader in readers:
        reader.close()
    return result


async def _gather(crowd: Crowd, count: int, *, polls: bool) -> list[_Reader]:
    """Open the connections of so many readers, some at a time."""
    loop = asyncio.get_running_loop()
    readers: list[_Reader] = []
    while len(readers) < count:
        opened = await asyncio.gather(
            *(
                loop.create_connection(lambda: _Reader(crowd, polls=polls), crowd.host, crowd.port)
                for _ in range(min(_AT_A_TIME, count - len(readers)))
            )
        )
        readers += [reader for _, reader in opened]
    return readers


def main() -> None:
    """Take a crowd on standard input, watch it, and put the result on standard output."""
    crowd = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Crowd)
    sys.stdout.buffer.write(msgspec.msgpack.encode(uvloop.run(_watch(crowd))))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
