"""Connections of the service's own HTTP server without sockets: bytes in, and each write kept."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from types import coroutine
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.operations.service import Service
from app.server.process import server_of
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
        super().__init__({"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 80)})
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
        self._written.set()

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


# Of all answers, so that two of them can be compared whatever second each was sent in.
DATE = b"Sat, 21 Nov 2026 05:09:46 GMT"


class Listener:
    """The HTTP server of one service, as `tidelog serve` makes it, and new connections."""

    def __init__(self, service: Service, *, is_hot: bool = True) -> None:
        """Without the hot lane, uvicorn's own protocol calls the same application."""
        self._server = server_of(service, host="127.0.0.1", port=0)
        self.state = self._server.server_state
        config = self._server.config
        config.load()
        protocol: Any = config.http_protocol_class if is_hot else HttpToolsProtocol
        self._protocol = partial(protocol, config=config, server_state=self.state, app_state={})

    def connect(self) -> Connection:
        return Connection(self._protocol())

    async def tick(self) -> None:
        """Set the headers of all answers, as the server does each second, with the same date."""
        await self._server.on_tick(0)
        rest = [pair for pair in self.state.default_headers if pair[0] != b"date"]
        self.state.default_headers = [(b"date", DATE), *rest]


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
