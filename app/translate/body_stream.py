"""A body that comes in pieces and may be of any length: decoded piece by piece, cut into lines.

What is held at once is bounded: a piece of what came, a piece of what it decodes to, and the lines
of one part.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from app.problems import MalformedRequest, UnsupportedMediaType
from engine.errors import CorruptBatch, TooLarge
from engine.records.compression import ZstdFrame, decompress
from engine.records.header import Codec
from engine.types import Buffer

PIECE_BYTES: Final = 256 * 1024
"""Gzip is decoded in pieces of this size, however much a few bytes of it hold."""

_GZIP_WINDOW_BITS: Final = 31
_LIMIT: Final = "max_request_bytes"


class Decoder(Protocol):
    """Takes a body as it was sent and gives it back without its Content-Encoding."""

    @property
    def held_bytes(self) -> int:
        """How much is here of what was fed."""
        ...

    def feed(self, data: bytes) -> None:
        """Take what came next."""
        ...

    def read(self) -> Buffer:
        """Return what comes next of the decoded body; nothing if more has to be fed first.

        Raises MalformedRequest for damage, TooLarge for what cannot be decoded in bounds.
        """
        ...

    def close(self) -> None:
        """Raise MalformedRequest if the body ended too early."""
        ...


def decoder_of(encoding: bytes, limit_bytes: int) -> Decoder:
    """Return what decodes this Content-Encoding; raises UnsupportedMediaType if nothing does.

    `limit_bytes` bounds what can only be decoded as a whole: a frame of zstd.
    """
    make = _DECODERS.get(encoding.strip().lower())
    if make is None:
        raise UnsupportedMediaType(
            f"Content-Encoding {encoding.decode('latin-1')} is not taken here",
            headers={"accept-encoding": "gzip, zstd"},
            accepted_encodings=["gzip", "identity", "zstd"],
        )
    return make(limit_bytes)


class PlainDecoder:
    """Gives back what it was fed."""

    def __init__(self, _limit_bytes: int) -> None:
        self._data = b""

    @property
    def held_bytes(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        self._data = data

    def read(self) -> Buffer:
        data, self._data = self._data, b""
        return data

    def close(self) -> None:
        """Nothing can be missing."""


class GzipDecoder:
    """Decodes one gzip member after the other, each of any length."""

    def __init__(self, _limit_bytes: int) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._data = b""
        self._has_more = False
        self._is_inside = False

    @property
    def held_bytes(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        self._data = data

    def read(self) -> Buffer:
        while self._data or self._has_more:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
            self._is_inside = True
            try:
                piece = self._member.decompress(self._data, PIECE_BYTES)
            except zlib.error as error:
                raise MalformedRequest(f"the body is not gzip: {error}") from None
            member = self._member
            self._is_inside = not member.eof
            self._data = member.unused_data if member.eof else member.unconsumed_tail
            self._has_more = len(piece) == PIECE_BYTES and not member.eof
            if piece:
                return piece
        return b""

    def close(self) -> None:
        if self._is_inside:
            raise MalformedRequest("the body is not gzip: it ends early")


class ZstdDecoder:
    """Decodes zstd a frame at a time: there may be any number of them, none beyond the limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._frame = ZstdFrame()
        self._data = bytearray()

    @property
    def held_bytes(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        self._data += data

    def read(self) -> Buffer:
        try:
            while (end := self._frame.end_in(self._data)) is not None:
                frame = bytes(self._data[:end])
                del self._data[:end]
                self._frame = ZstdFrame()
                if content := decompress(Codec.ZSTD, frame, self._limit_bytes):
                    return content
        except CorruptBatch as error:
            raise MalformedRequest(f"the body is not zstd: {error}") from None
        except TooLarge as error:
            raise self._too_large(error.facts().get("actual_bytes")) from None
        if len(self._data) > self._limit_bytes:
            raise self._too_large(len(self._data))
        return b""

    def close(self) -> None:
        if self._data:
            raise MalformedRequest("the body is not zstd: it ends early")

    def _too_large(self, actual_bytes: object) -> TooLarge:
        assert isinstance(actual_bytes, int)
        return TooLarge(
            f"a zstd frame is larger than {_LIMIT} ({self._limit_bytes}); send several",
            limit=_LIMIT,
            limit_bytes=self._limit_bytes,
            actual_bytes=actual_bytes,
        )


_DECODERS: Final[Mapping[bytes, Callable[[int], Decoder]]] = {
    b"identity": PlainDecoder,
    b"gzip": GzipDecoder,
    b"zstd": ZstdDecoder,
}


class Lines:
    """Cuts what is added into parts of whole lines, of `part_bytes` or one longer line each."""

    def __init__(self, part_bytes: int, limit_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._limit_bytes = limit_bytes
        self._held = bytearray()
        self._searched = 0  # below it there is no line break but those before `part_bytes`

    @property
    def held_bytes(self) -> int:
        return len(self._held)

    @property
    def has_whole(self) -> bool:
        """Whether at least one line is complete."""
        return b"\n" in self._held

    def add(self, data: Buffer) -> None:
        self._held += data

    def take_full(self) -> bytes | None:
        """Return a full part; None if more has to be added first.

        Raises TooLarge for a line beyond the limit.
        """
        if len(self._held) < self._part_bytes:
            return None
        end = self._held.rfind(b"\n", 0, self._part_bytes) + 1
        if not end:
            end = self._held.find(b"\n", max(self._searched, self._part_bytes)) + 1
            self._searched = len(self._held)
        if end:
            return self._take(end)
        if len(self._held) > self._limit_bytes:
            raise TooLarge(
                f"a line is longer than {_LIMIT} ({self._limit_bytes})",
                limit=_LIMIT,
                limit_bytes=self._limit_bytes,
                actual_bytes=len(self._held),
            )
        return None

    def take_whole(self) -> bytes:
        """Return the lines that are complete."""
        return self._take(self._held.rfind(b"\n") + 1)

    def take_rest(self) -> bytes:
        """Return everything: the body has ended, with its last line or inside it."""
        return self._take(len(self._held))

    def _take(self, end: int) -> bytes:
        part = bytes(self._held[:end])
        del self._held[:end]
        self._searched = 0
        return part
