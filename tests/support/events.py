"""A client of server-sent events without a socket: what it reads, and whether it reads at all."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anyio.lowlevel import checkpoint

from app.http.answers import App, Message
from app.http.slow_clients import CUT_OFF
from app.server.process import compose
from tests.support.service import Api

TAIL = "/v1/topics/events/partitions/0/tail"
PATIENCE_S = 30


@dataclass
class Event:
    """One event: its name, its id as text, its data as JSON."""

    name: str
    id: str
    data: dict[str, Any]

    @property
    def offset(self) -> int:
        """Where the id of the event says that a tail goes on."""
        return int(self.id.rpartition(":")[2])

    @property
    def values(self) -> list[object]:
        return [record["value"] for record in self.data["records"]]


@dataclass
class Listener:
    """One request for a stream of events, and what has come of it."""

    app: App
    target: str
    headers: dict[str, str]
    method: str = "GET"
    stalls_after: int = 0
    """So many parts of the body are taken, then nothing until `takes` is set; 0: all are."""
    status: int = 0
    answered: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    is_complete: bool = False
    is_cut_off: bool = False

    def __post_init__(self) -> None:
        self.takes = asyncio.Event()
        """Cleared: the client receives nothing, and senders wait."""
        self.takes.set()
        self.refuses = asyncio.Event()
        """Set: something is on its way to the client and is not taken."""
        self.gone = asyncio.Event()
        self._came = asyncio.Condition()
        self._read = 0

    def hang_up(self) -> None:
        self.gone.set()
        self.takes.set()

    async def run(self) -> None:
        """Make the request; returns when the service has nothing more to say."""
        path, _, query = self.target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in self.headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("test", 80),
            "extensions": {CUT_OFF: self._cut_off},
        }
        await self.app(scope, self._receive, self._send)

    async def next(self) -> Event:
        """Wait for the next event and return it."""
        while True:
            event = await self._event()
            if event is not None:
                return event

    async def read(self, count: int) -> list[Event]:
        """Wait for so many events and return them."""
        return [await self.next() for _ in range(count)]

    async def whole(self) -> bytes:
        """Wait for the end of the answer and return its body."""
        async with asyncio.timeout(PATIENCE_S), self._came:
            await self._came.wait_for(lambda: self.is_complete)
        return bytes(self.body)

    async def to_end(self) -> list[Event]:
        """Wait for the end of the answer; return the events that have not been read."""
        await self.whole()
        events = []
        while self._read < len(self.body):
            events.append(await self.next())
        return events

    async def _event(self) -> Event | None:
        """Return the next event, None for anything else."""
        async with asyncio.timeout(PATIENCE_S), self._came:
            await self._came.wait_for(lambda: self.body.find(b"\n\n", self._read) >= 0)
        end = self.body.index(b"\n\n", self._read)
        lines = self.body[self._read : end].decode().split("\n")
        self._read = end + 2
        fields: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name not in fields or name == "data", f"{name} twice"
            fields[name] = fields.get(name, "") + value
        if "data" not in fields:
            return None
        return Event(fields["event"], fields["id"], json.loads(fields["data"]))

    def _cut_off(self) -> None:
        self.is_cut_off = True
        self.hang_up()

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self.takes.is_set():
            self.refuses.set()
        await self.takes.wait()
        if self.gone.is_set():
            return
        async with self._came:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.answered = {
                    name.decode(): value.decode() for name, value in message["headers"]
                }
            else:
                self.stalls_after -= 1
                if self.stalls_after == 0:
                    self.takes.clear()
                self.body += message.get("body", b"")
                self.is_complete = not message.get("more_body", False)
            self._came.notify_all()


@asynccontextmanager
async def listening(
    app: App, target: str = TAIL, *, method: str = "GET", stalls_after: int = 0, **headers: str
) -> AsyncIterator[Listener]:
    """A listener that has been answered; it hangs up at the end, and its request ends.

    One that stalls has done so: what it does not take any more is on its way already.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    accept = {"accept": "text/event-stream"}
    listener = Listener(app, target, accept | named, method, stalls_after)
    running = asyncio.create_task(listener.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not listener.body and not listener.is_complete and not running.done():
                await checkpoint()
            if stalls_after:
                await listener.refuses.wait()
        yield listener
    finally:
        listener.hang_up()
        async with asyncio.timeout(PATIENCE_S):
            await running


@asynccontextmanager
async def tailing(
    api: Api, query: str = "", *, stalls_after: int = 0, **headers: str
) -> AsyncIterator[Listener]:
    """A tail of the topic `events` that has begun."""
    target = f"{TAIL}?{query}"
    app = compose(api.service)
    async with listening(app, target, stalls_after=stalls_after, **headers) as listener:
        yield listener


async def quiet(api: Api, count: int = 1) -> None:
    """Return when so many readers wait for the next commit."""
    async with asyncio.timeout(PATIENCE_S):
        while api.service.tail.waiting < count:
            await checkpoint()


async def metrics(api: Api) -> list[str]:
    """The lines of a scrape."""
    return (await api.client.get("/metrics")).text.splitlines()
