"""Bodies on their way in: how long they are waited for, and large ones without a copy.

A large body goes straight into the buffer that the log writes from. The buffer grows with what has
come: a head that announces 16 MiB takes no more memory than the body that follows it.
"""

from __future__ import annotations

import asyncio
import ctypes
from typing import Final, Protocol

DIRECT_BYTES: Final = 32 * 1024
"""Smaller bodies come in one piece most of the time, and to change the receiver costs more."""

FIRST_BYTES: Final = 128 * 1024
"""The first buffer for a body; most bodies need no other."""

GROWTH: Final = 8
"""A buffer that is full becomes so many times as large: that happens seldom, and what is allocated
stays in proportion to what came."""

NO_ROOM: Final = memoryview(b"")

# A buffer that is replaced by a larger one costs a copy, and pages that nobody writes to.
_resize: Final = ctypes.pythonapi.PyByteArray_Resize
_resize.argtypes = (ctypes.py_object, ctypes.c_ssize_t)


def lengthen(body: bytearray, size_bytes: int) -> None:
    """Give a buffer that length in place; what is new is not set. BufferError if it is viewed."""
    _resize(body, size_bytes)


def buffer_bytes(size_bytes: int, received_bytes: int) -> int:
    """Return how large the buffer of a body is to be, of which so much has come."""
    return min(size_bytes, max(FIRST_BYTES, GROWTH * received_bytes))


class Growing(Protocol):
    """A request whose body is being received."""

    def room(self, rest_bytes: int) -> memoryview:
        """Return where the next bytes of the body go, no more than that many."""

    def came(self, size_bytes: int) -> None:
        """Take note of so many bytes more of the body."""


class Connection(Protocol):
    """Whose place is taken: what it is told meanwhile, and when the transport is its own again."""

    def body_is_whole(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class BodyReceiver(asyncio.BufferedProtocol):
    """Stands in for a connection until the rest of one body has come.

    Of what follows the body not a byte is taken.
    """

    def __init__(self, connection: Connection, body: Growing, rest_bytes: int) -> None:
        assert rest_bytes, "there is something to be received"
        self._connection = connection
        self._body = body
        self._rest_bytes = rest_bytes
        self._room = NO_ROOM

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        if not self._room:
            self._room = NO_ROOM  # a view would keep the body from growing
            self._room = self._body.room(self._rest_bytes)
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Take note of bytes that have come."""
        self._room = self._room[nbytes:]
        self._rest_bytes -= nbytes
        self._body.came(nbytes)
        if not self._rest_bytes:
            self._connection.body_is_whole()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection that it is gone, and the body with it."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Hand on that the client takes nothing at the moment."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Hand on that it does again."""
        self._connection.resume_writing()
