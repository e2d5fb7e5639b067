"""Clients that demand more than a service can do, and count its responses.

Each paced client sends its next request when it is due, or when the last one was answered: refused
requests are not sent again, so that the demand stays constant. Pollers, tails and numbered writers
retry after a refusal, when its `Retry-After` says.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Self

from engine.records.builder import build_batch
from tests.support.time import START_MS

MIX = ("json", "raw", "json", "read", "ndjson", "raw", "json", "read", "raw read", "json")
"""What paced clients do, one after the other."""

RECORDS = 100
"""Of one append."""

VALUE = "v" * 100
READ_BYTES = 100_000
BUFFER_BYTES = 4 << 20
PARTITIONS = 4
STALL_S = 5.0
NUMBERED_PAUSE_S = 0.02
WRITES = ("json", "raw", "ndjson")
JSON, NDJSON, RAW = (
    "application/json",
    "application/x-ndjson",
    "application/vnd.kafka.recordbatch.v2",
)


def _bodies() -> dict[str, tuple[str, str, bytes]]:
    """Return path, content type and body of each kind of append."""
    record = json.dumps({"value": VALUE})
    batch = build_batch([(START_MS, None, VALUE.encode(), ())] * RECORDS)
    return {
        "json": ("records", JSON, f'{{"records":[{",".join([record] * RECORDS)}]}}'.encode()),
        "ndjson": ("records", NDJSON, f"{record}\n".encode() * RECORDS),
        "raw": ("batches", RAW, bytes(batch)),
    }


BODIES = _bodies()


@dataclass
class Window:
    """What happened in one part of the time."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    """Of paced requests that were let in, in seconds."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    """That the service used."""
    memory_bytes: list[int] = field(default_factory=list)

    def __iadd__(self, other: Window) -> Self:
        self.answers += other.answers
        self.latencies += other.latencies
        self.seconds += other.seconds
        self.cpu_s += other.cpu_s
        self.memory_bytes += other.memory_bytes
        return self

    def count(self, *statuses: int) -> int:
        """How many paced requests were answered so."""
        return sum(
            n for (kind, status), n in self.answers.items() if kind in MIX and status in statuses
        )

    @property
    def done(self) -> int:
        return self.count(200, 201)

    @property
    def refused(self) -> int:
        return self.count(503)

    @property
    def per_second(self) -> float:
        return self.done / self.seconds

    @property
    def done_per_cpu_s(self) -> float:
        return self.done / self.cpu_s

    def slowest(self, share: float) -> float:
        """The latency that only this share of those let in exceeded; for none of them, for ever."""
        if not self.latencies:
            return inf
        return sorted(self.latencies)[-1 - int(len(self.latencies) * share)]


@dataclass
class Tally:
    """The responses to all clients; `window` is the current counter."""

    window: Window = field(default_factory=Window)
    acknowledged: Counter[int] = field(default_factory=Counter)
    """Records in each partition of the bulk."""
    unanswered: Counter[int] = field(default_factory=Counter)
    newest: dict[int, int] = field(default_factory=dict)
    """An offset that readers of a partition may begin at."""
    numbered: dict[str, int] = field(default_factory=Counter)
    """How many values of each numbered writer were acknowledged."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    """From now on the service may close connections, and clients do not reconnect."""


class Refused(Exception):
    """503: come again in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Client(ABC):
    """One connection, opened again when it is lost; `work` until called off."""

    def __init__(self, url: str, tally: Tally) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._address = host, int(port)
        self.tally = tally
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __call__(self) -> None:
        try:
            while not self.tally.is_over.is_set():
                try:
                    await self.work()
                except Refused as refused:
                    await self.rest(refused.seconds)
                except (ConnectionError, asyncio.IncompleteReadError):
                    assert self.tally.is_over.is_set(), "a connection was cut amid an answer"
        finally:
            self.hang_up()

    async def rest(self, seconds: float) -> None:
        """Return after that time, or when all is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.tally.is_over.wait(), seconds)

    @abstractmethod
    async def work(self) -> None:
        """Do the next thing."""

    def hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def ask(
        self, kind: str, method: str, path: str, body: bytes = b"", **headers: str
    ) -> bytes:
        """Send a request and return the body of its answer; raises Refused."""
        await self.send(method, path, body, **headers)
        status, fields = await self.head()
        content = await self.reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close":
            self.hang_up()
        self.tally.window.answers[kind, status] += 1
        if status == 503:
            raise Refused(float(fields["retry-after"]))
        assert status in (200, 201), (kind, status, content)
        return content

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, limit=BUFFER_BYTES)
        fields = {"host": "localhost", "content-length": str(len(body)), **headers}
        lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in fields.items())
        self._streams[1].write(
            f"{method} /v1/topics/{path} HTTP/1.1\r\n{lines}\r\n".encode() + body
        )
        await self._streams[1].drain()

    @property
    def reader(self) -> asyncio.StreamReader:
        assert self._streams is not None
        return self._streams[0]

    async def head(self) -> tuple[int, dict[str, str]]:
        line, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        return int(line.split()[1]), dict(one.lower().split(": ", 1) for one in lines)


class Paced(Client):
    """Takes the next of the mix whenever its time has come; `pause` 0 is as soon as it can."""

    def __init__(self, url: str, tally: Tally, turns: Iterator[int], pause: float) -> None:
        super().__init__(url, tally)
        self._turns = turns
        self._pause = pause
        self._due = monotonic()

    async def work(self) -> None:
        self._due = max(monotonic(), self._due + self._pause)
        await self.rest(self._due - monotonic())
        turn = next(self._turns)
        kind, partition = MIX[turn % len(MIX)], turn // len(MIX) % PARTITIONS
        path = f"bulk/partitions/{partition}"
        begin = monotonic()
        try:
            if kind in WRITES:
                await self._append(kind, path, partition)
            else:
                await self._read(kind, path, partition)
        except Refused:
            return
        self.tally.window.latencies.append(monotonic() - begin)

    async def _append(self, kind: str, path: str, partition: int) -> None:
        resource, content_type, body = BODIES[kind]
        self.tally.unanswered[partition] += RECORDS
        try:
            answer = await self.ask(
                kind, "POST", f"{path}/{resource}", body, content_type=content_type
            )
        except Refused:
            self.tally.unanswered[partition] -= RECORDS
            raise
        self.tally.unanswered[partition] -= RECORDS
        self.tally.acknowledged[partition] += RECORDS
        self.tally.newest[partition] = json.loads(answer)["base_offset"]

    async def _read(self, kind: str, path: str, partition: int) -> None:
        newest = self.tally.newest.get(partition, 0)
        resource = "batches" if kind == "raw read" else "records"
        offset = max(0, newest - 10 * RECORDS)
        await self.ask(kind, "GET", f"{path}/{resource}?offset={offset}&max_bytes={READ_BYTES}")


class Poller(Client):
    """Waits at the end of a log to which nothing is appended."""

    async def work(self) -> None:
        await self.ask("poll", "GET", "quiet/partitions/0/records?offset=latest&max_wait_ms=1000")


class Tail(Client):
    """Follows a busy log for some events, then comes again; one that stalls takes nothing more."""

    def __init__(self, url: str, tally: Tally, *, stalls: bool) -> None:
        super().__init__(url, tally)
        self._stalls = stalls

    async def work(self) -> None:
        await self.send("GET", "bulk/partitions/0/tail?offset=latest")
        status, fields = await self.head()
        self.tally.window.answers["tail", status] += 1
        if status == 503:
            await self.reader.readexactly(int(fields["content-length"]))
            raise Refused(float(fields["retry-after"]))
        assert status == 200
        if self._stalls:
            await self.rest(STALL_S)
        else:
            for _ in range(20):
                await self.reader.readuntil(b"\n\n")
        self.hang_up()


class Numbered(Client):
    """Sends numbered values, each until it is acknowledged: they are there once and in order."""

    def __init__(self, url: str, tally: Tally, name: str, producer_id: int) -> None:
        super().__init__(url, tally)
        self.name = name
        self._producer_id = producer_id

    async def work(self) -> None:
        number = self.tally.numbered[self.name]
        await self.ask(
            "numbered",
            "POST",
            "kept/partitions/0/records",
            json.dumps({"records": [{"value": f"{self.name} {number}"}]}).encode(),
            producer_id=str(self._producer_id),
            producer_epoch="0",
            producer_sequence=str(number),
            content_type=JSON,
        )
        self.tally.numbered[self.name] += 1
        await self.rest(NUMBERED_PAUSE_S)


class Crowd:
    """Clients that run in parallel; the first wrong response ends all."""

    def __init__(self, url: str, producer_ids: Sequence[int]) -> None:
        self.tally = Tally()
        self._url = url
        self._producer_ids = producer_ids
        self._turns = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []
        self._paced: list[asyncio.Task[None]] = []

    def come(self, *, pollers: int, tails: int) -> None:
        """Bring those who come again when they are refused; every second tail stalls."""
        for number, producer_id in enumerate(self._producer_ids):
            self._add(Numbered(self._url, self.tally, f"w{number}", producer_id))
        for _ in range(pollers):
            self._add(Poller(self._url, self.tally))
        for number in range(tails):
            self._add(Tail(self._url, self.tally, stalls=number % 2 > 0))

    async def pace(self, clients: int, per_second: float) -> None:
        """Have so many clients ask so often together, in the place of those before them."""
        for task in self._paced:
            task.cancel()
        await asyncio.gather(*self._paced, return_exceptions=True)
        pause = clients / per_second
        self._paced = [
            asyncio.ensure_future(Paced(self._url, self.tally, self._turns, pause)())
            for _ in range(clients)
        ]

    def _add(self, client: Client) -> None:
        self._tasks.append(asyncio.ensure_future(client()))

    async def let_work(self, seconds: float) -> None:
        """Return after that time; raise what a client failed with, if one did."""
        tasks = [*self._tasks, *self._paced]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def leave(self) -> None:
        """Return when every client has a response or is disconnected."""
        self.tally.is_over.set()
        await asyncio.gather(*self._tasks, *self._paced)
