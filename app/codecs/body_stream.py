"""Bodies without their Content-Encoding, piece by piece: whole ones, and those of any length.

Of the latter, which are cut into lines, what is held at once is bounded: a piece of what came, a
piece of what it decodes to, and the lines of one part.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import zstandard

from app.http.answers import Body
from app.http.problems import MalformedRequest, UnsupportedMediaType, body_too_large
from engine.errors import CorruptBatch, TooLarge
from engine.records.budget import DecodeBudget
from engine.records.zstd_frame import FramePieces
from engine.types import Buffer

IDENTITY: Final = b"identity"

PIECE_BYTES: Final = 256 * 1024
"""Bodies are decoded in pieces of this size, however much a few bytes of them hold."""

FED_BYTES: Final = 64 * 1024
"""A whole body is given to its decoder in pieces of this size: between them the budget is checked.
"""

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""The largest window that zstd has as a content coding (RFC 9659): so much is held of a frame."""

_GZIP_WINDOW_BITS: Final = 31
_FIRST_SLICE_BYTES: Final = 512
_SLICE_BYTES: Final = 64 * 1024
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

        Raises MalformedRequest for damage, and for what cannot be decoded in bounds.
        """
        ...

    def close(self) -> None:
        """Raise MalformedRequest if the body ended too early."""
        ...


def decoder_of(encoding: bytes) -> Decoder:
    """Return what decodes this Content-Encoding; raises UnsupportedMediaType if nothing does."""
    make = _DECODERS.get(encoding.strip().lower())
    if make is None:
        raise UnsupportedMediaType(
            f"Content-Encoding {encoding.decode('latin-1')} is not taken here",
            headers={"accept-encoding": "gzip, zstd"},
            accepted_encodings=["gzip", "identity", "zstd"],
        )
    return make()


def decode_body(
    body: Body, encoding: bytes, *, limit: tuple[str, int], budget: DecodeBudget
) -> bytearray:
    """Return a whole body as it was before it was coded, never more than the limit of a body.

    Raises as `decoder_of`, what that returns, and the budget; and TooLarge beyond the limit.
    """
    decoder = decoder_of(encoding)
    content = bytearray()
    view = memoryview(body)
    for start in range(0, len(view), FED_BYTES):
        budget.check()
        decoder.feed(bytes(view[start : start + FED_BYTES]))
        while piece := decoder.read():
            budget.take(len(piece))
            content += piece
            if len(content) > limit[1]:
                raise body_too_large(limit, len(content))
    decoder.close()
    return content


class PlainDecoder:
    """Gives back what it was fed."""

    def __init__(self) -> None:
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
    """Decodes one gzip member after the other, each of any length.

    zlib returns a copy of the bytes it did not need. So it is given few bytes where a member
    begins, and twice as many with each call inside it: the copies stay in proportion to the body.
    """

    def __init__(self) -> None:
        self._begin_member()
        self._data = memoryview(b"")
        self._position = 0
        self._has_more = False
        self._is_inside = False

    def _begin_member(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._slice_bytes = _FIRST_SLICE_BYTES

    @property
    def held_bytes(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    def read(self) -> Buffer:
        while self._position < len(self._data) or self._has_more:
            if self._member.eof:
                self._begin_member()
            self._is_inside = True
            end = min(self._position + self._slice_bytes, len(self._data))
            try:
                piece = self._member.decompress(self._data[self._position : end], PIECE_BYTES)
            except zlib.error as error:
                raise MalformedRequest(f"the body is not gzip: {error}") from None
            member = self._member
            self._is_inside = not member.eof
            self._position = end - len(member.unused_data if member.eof else member.unconsumed_tail)
            self._slice_bytes = min(2 * self._slice_bytes, _SLICE_BYTES)
            self._has_more = len(piece) == PIECE_BYTES and not member.eof
            if piece:
                return piece
        return b""

    def close(self) -> None:
        if self._is_inside:
            raise MalformedRequest("the body is not gzip: it ends early")


class ZstdDecoder:
    """Decodes one zstd frame after the other, each of any length."""

    def __init__(self) -> None:
        self._frame = FramePieces()
        self._decompressor = zstandard.ZstdDecompressor()
        self._decoding: zstandard.ZstdDecompressionObj | None = None
        self._data = b""
        self._position = 0

    @property
    def held_bytes(self) -> int:
        return len(self._data) + self._frame.window_bytes

    def feed(self, data: bytes) -> None:
        self._data = self._data[self._position :] + data
        self._position = 0

    def read(self) -> Buffer:
        try:
            while piece := self._next_piece():
                content = b"" if self._frame.is_skippable else self._decoded(piece)
                if self._frame.is_over:
                    self._frame = FramePieces()
                    self._decoding = None
                if content:
                    return content
        except (CorruptBatch, zstandard.ZstdError) as error:
            raise MalformedRequest(f"the body is not zstd: {error}") from None
        return b""

    def _decoded(self, piece: bytes) -> bytes:
        if self._decoding is None:
            self._decoding = self._decompressor.decompressobj()
        return self._decoding.decompress(piece)

    def _next_piece(self) -> bytes:
        start, frame = self._position, self._frame
        self._position = frame.next_in(self._data, start, PIECE_BYTES)
        if frame.window_bytes > WINDOW_BYTES:
            raise MalformedRequest(
                f"a zstd frame has a window of {frame.window_bytes} bytes; "
                f"{WINDOW_BYTES} are allowed in HTTP (RFC 9659)"
            )
        return self._data[start : self._position]

    def close(self) -> None:
        if self._frame.has_begun or self._position < len(self._data):
            raise MalformedRequest("the body is not zstd: it ends early")


_DECODERS: Final[Mapping[bytes, Callable[[], Decoder]]] = {
    IDENTITY: PlainDecoder,
    b"gzip": GzipDecoder,
    b"x-gzip": GzipDecoder,  # the same (RFC 9110, 8.4.1.3)
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
