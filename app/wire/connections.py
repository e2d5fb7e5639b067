"""What lies between socket and protocol: connections counted before any handshake, joined writes.

The transport sends head and body together, and limits the wait for a slow client.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.limits.admission import Admission
from engine.errors import Overloaded
from engine.types import Buffer

JOINED_BYTES: Final = 64 * 1024
"""Up to this size a copy is cheaper than a second buffer."""


class CoalescingTransport:
    """A transport that sends the head of an answer together with its body.

    uvicorn writes them separately, one more system call for every small answer. A head without a
    body is sent in the next turn of the event loop.
    """

    def __init__(self, transport: asyncio.Transport, close_seconds: float) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # called for every answer: no indirection
        self._close_seconds = close_seconds
        self._head = b""
        self._loop = asyncio.get_running_loop()

    def write(self, data: Buffer) -> None:
        """Send `data`, after the pending head, if there is one."""
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
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():  # it may have been aborted since
            self._transport.write(head)

    def close(self) -> None:
        """Send pending data, then close; a client that does not receive it in time loses it."""
        self._flush()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._loop.call_later(self._close_seconds, self._transport.abort)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever else a transport can do
        return getattr(self._transport, name)


Uncount = Callable[[], None]
"""To be called once, when the connection has ended."""

_NO_SOCKET: Final = -1


class CountedProtocol(HttpToolsProtocol):
    """A connection that may have been counted before it had a transport."""

    uncount: Uncount | None = None


def counted(admission: Admission, transport: asyncio.BaseTransport) -> Uncount:
    """Count a connection; raises Overloaded if there are too many."""
    client = transport.get_extra_info("peername")
    accepted = transport.get_extra_info("socket")
    descriptor = _NO_SOCKET if accepted is None else accepted.fileno()
    return admission.connect(client[0] if client else "", descriptor)


class TlsHandshake(asyncio.Protocol):
    """An accepted connection before its TLS handshake: counted, or closed if there are too many.

    An event loop that accepts TLS reports a connection only after its handshake, too late to count
    or refuse it.
    """

    def __init__(
        self,
        admission: Admission,
        context: ssl.SSLContext,
        timeout_ms: int,
        make: Callable[..., CountedProtocol],
        **options: Any,  # noqa: ANN401  # uvicorn's
    ) -> None:
        self._admission = admission
        self._context = context
        self._timeout_s = timeout_ms / 1000
        self._make = make
        self._options = options
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, unless there are too many connections.

        The socket is taken from the transport, which would otherwise read the client's first bytes.
        """
        accepted: socket.socket = transport.get_extra_info("socket")
        try:
            uncount = counted(self._admission, transport)
        except Overloaded:
            pass
        else:
            own = socket.fromfd(accepted.fileno(), accepted.family, accepted.type)
            shaking = self._shake_hands(own, uncount)
            self._task = asyncio.get_running_loop().create_task(shaking)
        transport.abort()  # type: ignore[attr-defined]  # it is one that is written to

    async def _shake_hands(self, own: socket.socket, uncount: Uncount) -> None:
        """Finish the handshake in time, or close the connection."""
        protocol = self._make(**self._options)
        protocol.uncount = uncount
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, own, ssl=self._context, ssl_handshake_timeout=self._timeout_s
            )
        except OSError:
            pass  # caused by the client: it disconnected, does not speak TLS, or was too slow
        finally:
            if cast("object", protocol.transport) is None:  # otherwise `connection_lost` does it
                uncount()
