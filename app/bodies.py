"""A large body on its way into the buffer that the log writes from: no parser, no copy between."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

DIRECT_BYTES: Final = 32 * 1024
"""Smaller bodies come in one piece most of the time, and to change the receiver costs more."""


class Connection(Protocol):
    """Whose place is taken: what it is told meanwhile, and when the transport is its own again."""

    def body_came(self, size_bytes: int, *, is_whole: bool) -> None:
        """Take note of so many bytes more of the body; if it is whole, go on behind it."""

    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class BodyReceiver(asyncio.BufferedProtocol):
    """Stands in for a connection until the rest of one body is in its buffer.

    The buffer ends where the body does: of what follows it not a byte is taken.
    """

    def __init__(self, connection: Connection, rest: memoryview) -> None:
        assert rest, "there is something to be received"
        self._connection = connection
        self._rest = rest

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        """Take note of bytes that have come."""
        self._rest = self._rest[nbytes:]
        self._connection.body_came(nbytes, is_whole=not self._rest)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection that it is gone, and the body with it."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Hand on that the client takes nothing at the moment."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Hand on that it does again."""
        self._connection.resume_writing()
