"""The connections to receivers: every one is to an address that was judged right before.

Redirects are not followed, cookies are not kept, and no proxy of the environment is used.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import httpcore

from app.operations.subscriptions.targets import Hosts, resolved
from engine.types import Buffer

MAX_RESPONSE_BYTES: Final = 64 * 1024
"""Of a response's body; more is not read."""

MAX_CONNECTIONS: Final = 200
_KEEP_S: Final = 60.0


class Response(NamedTuple):
    """What a receiver answered."""

    status: int
    retry_after: str | None
    body: bytes
    """The beginning."""


class _Guarded(httpcore.AsyncNetworkBackend):
    """Connects to addresses that may be reached, and to nothing else."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # as httpcore declares it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await resolved(self._hosts, host, port)
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        assert failure is not None, "there is an address"
        raise failure


class Sender:
    """The connections to all receivers. Belongs to the event loop."""

    def __init__(self, hosts: Hosts, *, ca_file: str | None = None) -> None:
        """`ca_file` has CAs of receivers, besides the system's."""
        context = ssl.create_default_context()
        if ca_file is not None:
            context.load_verify_locations(ca_file)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_CONNECTIONS,
            keepalive_expiry=_KEEP_S,
            network_backend=_Guarded(hosts),
        )

    async def post(
        self, url: str, headers: Mapping[str, str], body: Buffer, timeout_ms: int
    ) -> Response:
        """Send a request; return the status and the beginning of the response.

        Raises Refused, TimeoutError, and what httpcore raises.
        """
        lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        content = bytes(body)
        async with (
            asyncio.timeout(timeout_ms / 1000),
            self._pool.stream("POST", url, headers=lines, content=content) as response,
        ):
            received = bytearray()
            async for piece in response.aiter_stream():
                received += piece
                if len(received) > MAX_RESPONSE_BYTES:
                    break
            retry_after = dict(response.headers).get(b"retry-after")
            return Response(
                response.status,
                None if retry_after is None else retry_after.decode("latin-1"),
                bytes(received[:MAX_RESPONSE_BYTES]),
            )

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()
