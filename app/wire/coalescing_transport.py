"""A transport that sends head and body together, and limits the wait for a slow client."""

from __future__ import annotations

import asyncio
from typing import Any, Final

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
