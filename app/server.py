"""The process: settings in, uvicorn running, stopped gracefully. Loaded only by what serves."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.factory import create_api, framed
from app.fast_lane import FastLane
from app.middleware import App
from app.operations.service import Service
from app.problems import MalformedRequest, problem_answer
from app.settings import Settings
from engine.types import Buffer

JOINED_BYTES = 64 * 1024
"""Up to this size a copy is cheaper than a second buffer."""

GRACE_SECONDS = 30
"""What is at work when a signal comes has so long to end."""


class OneWrite:
    """A transport that sends the head of an answer together with its body.

    uvicorn writes them apart, which is a system call more for every small answer. A head that no
    body follows at once leaves with the next turn of the loop.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._loop = asyncio.get_running_loop()

    def write(self, data: Buffer) -> None:
        """Send `data`, behind the head that waits, if there is one."""
        if self._head:
            head, self._head = self._head, b""
            if len(data) > JOINED_BYTES:
                self._transport.writelines((head, data))
            else:
                self._transport.write(head + data)
        elif isinstance(data, bytes) and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Send what waits, then close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever else a transport can do
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP, writing each answer once; heads are bounded, what is no HTTP is explained."""

    def __init__(self, *, max_header_bytes: int, **options: Any) -> None:  # noqa: ANN401  # uvicorn's
        super().__init__(**options)
        self._max_header_bytes = max_header_bytes
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's
        """Begin a connection."""
        super().connection_made(cast("asyncio.Transport", OneWrite(transport)))

    def data_received(self, data: bytes) -> None:
        """Take what came; hang up on a line and headers that do not end."""
        super().data_received(data)
        scope = cast("Mapping[str, object] | None", self.scope)
        if scope is None or "method" in scope:  # uvicorn sets it when the head is whole
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > self._max_header_bytes and not self.transport.is_closing():
            limit = f"max_header_bytes ({self._max_header_bytes})"
            self.send_400_response(f"the line and headers are larger than {limit}")

    def send_400_response(self, msg: str) -> None:
        """Explain what is no request, as every other error, and hang up."""
        answer = problem_answer(MalformedRequest(msg), path="/")
        head = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
        lines = (b"%b: %b\r\n" % header for header in (*head, (b"connection", b"close")))
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%b\r\n" % b"".join(lines))
        self.transport.write(answer.body)
        self.transport.close()


def compose(service: Service, on_failure: Callable[[], None] | None = None) -> App:
    """Return the whole service: the fast lane in front of the framed application."""
    return FastLane(framed(create_api(service, on_failure), service), service)


class Server(uvicorn.Server):
    """Tells the service to drain as soon as a signal asks it to stop.

    Otherwise long polls would keep their connections, and the process, for as long as they wait.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self.addresses: list[str] = []
        """What is listened on, once it is."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # a handler
        """Stop accepting and drain; asked again, do not wait for anybody.

        Unlike uvicorn's it does not raise the signal anew at the end: a clean stop exits with 0.
        """
        self._service.drain_soon()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then print the address: with port 0 nobody else knows it."""
        await super().startup(sockets)
        for server in self.servers:
            for bound in server.sockets:
                host, port = bound.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                self.addresses.append(f"http://{shown}:{port}")
                sys.stdout.write(f"tidelog listens on {self.addresses[-1]}\n")
        sys.stdout.flush()


def run(settings: Settings, *, host: str, port: int) -> BaseException | None:
    """Serve until a signal comes; return why the data directory could not be opened, if so."""
    service = Service(settings)
    server_of(service, host=host, port=port).run()
    return service.failure


def server_of(service: Service, *, host: str, port: int) -> Server:
    """Return a server that is ready to run."""

    def stop() -> None:
        server.should_exit = True

    protocol = partial(Protocol, max_header_bytes=service.settings.max_header_bytes)
    config = uvicorn.Config(
        compose(service, stop),
        host=host,
        port=port,
        loop="uvloop",
        http=protocol,  # type: ignore[arg-type]  # called with uvicorn's arguments, not subclassed
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = Server(config, service)
    return server
