"""A client of the service as `tidelog serve` composes it: real HTTP, over memory for a socket."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

from app.operations.service import Service
from tests.support.wire import Connection, Listener


class Loopback(httpcore.AsyncNetworkBackend):
    """Connects clients to the HTTP server of one service."""

    def __init__(self, service: Service, *, is_hot: bool) -> None:
        self._listener = Listener(service, is_hot=is_hot)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # of httpcore
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the one server there is, whatever the address."""
        await self._listener.tick()
        return _Stream(self._listener.connect())


class _Stream(httpcore.AsyncNetworkStream):
    """One connection, as the client has it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._wire = connection.wire
        self._is_lost = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # of httpcore
        async with asyncio.timeout(timeout):
            while not any(self._wire.writes):
                if self._wire.is_closing():
                    self._lose()
                    return b""
                await self._wire.next_write()
        data = b"".join(self._wire.writes)
        self._wire.writes[:] = filter(None, [data[max_bytes:]])
        return data[:max_bytes]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # of httpcore
        async with asyncio.timeout(timeout):
            while self._wire.is_reading_paused and not self._wire.is_closing():
                await self._wire.next_write()
        if self._wire.is_closing():
            raise httpcore.WriteError("the server has closed the connection")
        self._connection.send(buffer)

    async def aclose(self) -> None:
        self._lose()

    def get_extra_info(self, info: str) -> Any:
        return self._wire.is_closing() if info == "is_readable" else None

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._connection.hang_up()


class _Transport(httpx.AsyncHTTPTransport):
    def __init__(self, service: Service, *, is_hot: bool) -> None:
        super().__init__(verify=False)  # certificates take 30 ms to load, and none is used
        self._pool = httpcore.AsyncConnectionPool(
            network_backend=Loopback(service, is_hot=is_hot), max_connections=None
        )


def wired(service: Service, *, is_hot: bool = True) -> httpx.AsyncClient:
    """A client of the service as it is served, or without its hot lane."""
    return httpx.AsyncClient(
        transport=_Transport(service, is_hot=is_hot),
        base_url="http://localhost",
        timeout=60,
        event_hooks={"response": [_require_single_headers]},
    )


async def _require_single_headers(answer: httpx.Response) -> None:
    names = Counter(name.lower() for name, _ in answer.headers.raw)
    assert names.total() == len(names), f"{answer.request.url}: {names.most_common(1)} twice"
