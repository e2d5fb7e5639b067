"""Connections of the service's own HTTP server without sockets: bytes in, and each write kept."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from types import coroutine

import httpx
import uvicorn
from uvicorn.server import ServerState

from app.operations.service import Service
from app.server.process import compose, hot_lane
from app.wire.protocol import Protocol


@coroutine
def one_iteration() -> Generator[None]:
    """Let the event loop run once what is ready by now; `turn` takes two iterations."""
    yield


async def turn() -> None:
    """Return when the event loop has run what is ready now."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


class Wire(asyncio.Transport):
    """A transport that keeps what is written; each write is one system call of a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_reading_paused = False
        self.is_aborted = False
        self.unsent_bytes = 0
        """What the client has not taken; the test decides."""
        self._is_closing = False
        self._written = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self._written.set()

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        self._written.set()  # reads wait as writes do
        return self.unsent_bytes

    def abort(self) -> None:
        self.is_aborted = True
        self.close()

    def close(self) -> None:
        self._is_closing = True
        self._written.set()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    async def next_write(self) -> None:
        """Return when something more is written, or the connection is closed."""
        self._written.clear()
        await asyncio.wait_for(self._written.wait(), 20)


class Connection:
    """One client's connection; what the server does with it can be looked at."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.wire = Wire()
        self._taken = 0
        protocol.connection_made(self.wire)

    @property
    def written(self) -> bytes:
        return b"".join(self.wire.writes)

    @property
    def has_tasks(self) -> bool:
        """Whether a request is with the ASGI application: the hot lane needs no task."""
        return bool(self.protocol.tasks)

    def send(self, data: bytes) -> None:
        """Let bytes arrive, as one read of the socket."""
        self.protocol.data_received(data)

    async def ask(self, data: bytes) -> Reply:
        """Let a request arrive, and return its answer."""
        self.send(data)
        return await self.answer()

    def hang_up(self) -> None:
        """Let the client go."""
        self.wire.close()
        self.protocol.connection_lost(None)

    async def answer(self) -> Reply:
        """Return the next answer, waiting until it is whole."""
        while True:
            rest = self.written[self._taken :]
            head, end, body = rest.partition(b"\r\n\r\n")
            if end:
                reply = Reply(head, body)
                if len(body) >= reply.body_bytes:
                    self._taken += len(head) + len(end) + reply.body_bytes
                    return reply
            assert not self.wire.is_closing(), rest
            await self.wire.next_write()


class Reply:
    """One answer, as it was written."""

    def __init__(self, head: bytes, rest: bytes) -> None:
        line, *fields = head.split(b"\r\n")
        self.status = int(line.split(b" ")[1])
        self.headers = [
            (name, value) for name, _, value in (field.partition(b": ") for field in fields)
        ]
        self.body_bytes = int(dict(self.headers).get(b"content-length", b"0"))
        self.body = rest[: self.body_bytes]


class Listener:
    """The HTTP server of one service: its settings, its state, and new connections."""

    def __init__(self, service: Service) -> None:
        config = uvicorn.Config(compose(service), log_config=None, access_log=False)
        config.load()
        self.state = ServerState()
        self._protocol = partial(
            Protocol,
            hot_lane=hot_lane(service),
            max_header_bytes=service.settings.max_header_bytes,
            config=config,
            server_state=self.state,
            app_state={},
        )

    def connect(self) -> Connection:
        return Connection(self._protocol())


def request(
    method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> bytes:
    """A request as bytes, with the length of its body, and its type if the path says it."""
    fields = {"host": "localhost", "content-length": str(len(body))}
    if body:
        is_raw = path.partition("?")[0].endswith("/batches")
        fields["content-type"] = "application/octet-stream" if is_raw else "application/json"
    fields |= headers or {}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


class _WireTransport(httpx.AsyncBaseTransport):
    """Sends what httpx makes of a request over one connection."""

    def __init__(self, service: Service) -> None:
        self._connection = Listener(service).connect()

    async def handle_async_request(self, sent: httpx.Request) -> httpx.Response:
        lines = b"".join(b"%b: %b\r\n" % header for header in sent.headers.raw)
        target = sent.url.raw_path
        body = await sent.aread()
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (sent.method.encode(), target, lines)
        reply = await self._connection.ask(head + body)
        return httpx.Response(reply.status, headers=reply.headers, content=reply.body)


def wired(service: Service) -> httpx.AsyncClient:
    """A client of the service as it is served, hot lane and all, on one connection."""
    transport = _WireTransport(service)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")
