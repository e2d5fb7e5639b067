"""Request bodies: large ones are received without a copy.

A large body is received into the buffer that the log writes from. The buffer grows with the bytes
received: a head that announces 16 MiB takes no more memory than the body that follows it.
"""

from __future__ import annotations

import asyncio
import ctypes
from typing import Final, Protocol

DIRECT_BYTES: Final = 32 * 1024
"""Smaller bodies usually arrive in one piece, and switching the receiver costs more."""

FIRST_BYTES: Final = 128 * 1024
"""The first buffer of a body; most bodies need no other."""

GROWTH: Final = 8
"""A full buffer grows by this factor: rarely, and in proportion to the bytes received."""

NO_ROOM: Final = memoryview(b"")

# Replacing a buffer with a larger one costs a copy, and pages that are never written.
_resize: Final = ctypes.pythonapi.PyByteArray_Resize
_resize.argtypes = (ctypes.py_object, ctypes.c_ssize_t)


def lengthen(body: bytearray, size_bytes: int) -> None:
    """Resize a buffer in place; new bytes are undefined. BufferError if it has a view."""
    _resize(body, size_bytes)


def buffer_bytes(size_bytes: int, received_bytes: int) -> int:
    """Return the buffer size for a body of which this many bytes were received."""
    return min(size_bytes, max(FIRST_BYTES, GROWTH * received_bytes))


class Growing(Protocol):
    """A request whose body is being received."""

    def room(self, rest_bytes: int) -> memoryview:
        """Return a buffer for the next bytes of the body, at most `rest_bytes`."""

    def came(self, size_bytes: int) -> None:
        """Count received bytes of the body."""


class Connection(Protocol):
    """The connection that a receiver replaces."""

    def body_is_whole(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class BodyReceiver(asyncio.BufferedProtocol):
    """Replaces a connection's protocol until the rest of one body has arrived.

    It reads no byte after the body.
    """

    def __init__(self, connection: Connection, body: Growing, rest_bytes: int) -> None:
        assert rest_bytes, "there is something to be received"
        self._connection = connection
        self._body = body
        self._rest_bytes = rest_bytes
        self._room = NO_ROOM

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return a buffer for the next bytes."""
        if not self._room:
            self._room = NO_ROOM  # a view would prevent the body from growing
            self._room = self._body.room(self._rest_bytes)
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Count received bytes."""
        self._room = self._room[nbytes:]
        self._rest_bytes -= nbytes
        self._body.came(nbytes)
        if not self._rest_bytes:
            self._connection.body_is_whole()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost connection to the request's connection."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward: the client receives nothing at the moment."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Forward: the client receives again."""
        self._connection.resume_writing()
