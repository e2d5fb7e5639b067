"""Bodies without their Content-Encoding, piece by piece: whole ones, and those of any length.

Of the latter, which are cut into lines, what is held at once is bounded: a piece of what came, a
piece of what it decodes to, and the lines of one part.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from app.http.answers import Body
from app.http.problems import MalformedRequest, UnsupportedMediaType, body_too_large
from engine.errors import TooLarge
from engine.records.budget import DecodeBudget
from engine.records.codecs.zstd import zstd
from engine.types import Buffer

IDENTITY: Final = b"identity"

PIECE_BYTES: Final = 256 * 1024
"""Bodies are decoded in pieces of this size, however much a few bytes of them hold."""

FED_BYTES: Final = 64 * 1024
"""A whole body is given to its decoder in pieces of this size: between them the budget is checked.
"""

_ZSTD_WINDOW_BITS: Final = 23  # 8 MiB, the most that a content coding may have (RFC 9659)
_ZSTD_OPTIONS: Final[Mapping[int, int]] = {
    zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_BITS
}
_ZSTD_HEAD_BYTES: Final = 6  # magic, descriptor, window
_ZSTD_SINGLE_SEGMENT: Final = 0x20  # then the content is the window, and there is no such byte
_GZIP_WINDOW_BITS: Final = 15
_GZIP_CONTAINER: Final = 16  # added to the bits, it has zlib expect gzip's header
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


class _Member(Protocol):
    """One gzip member or zstd frame, with the names of the standard library's decompressors."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: Buffer, max_length: int) -> bytes: ...


class _GzipMember:
    """zlib's decompressor, which leaves it to the caller to keep what it did not need."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP_CONTAINER + _GZIP_WINDOW_BITS)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        piece = self._inflater.decompress(data or self._inflater.unconsumed_tail, max_length)
        self.needs_input = len(piece) < max_length and not self.eof
        return piece


def _zstd_frame() -> _Member:
    return zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)


def _zstd_window_bytes(head: memoryview) -> int:
    """Return the window in the head of a frame; the largest one if that does not tell."""
    if len(head) < _ZSTD_HEAD_BYTES or head[4] & _ZSTD_SINGLE_SEGMENT:
        return 1 << _ZSTD_WINDOW_BITS
    exponent, mantissa = divmod(head[5], 8)
    return (8 + mantissa) << 7 + exponent


class _Coding(NamedTuple):
    name: str
    begin: Callable[[], _Member]
    window_bytes: Callable[[memoryview], int]
    """How much of its content a member with this head refers to: the decompressor holds it."""


_GZIP: Final = _Coding("gzip", _GzipMember, lambda _: 1 << _GZIP_WINDOW_BITS)
_ZSTD: Final = _Coding("zstd", _zstd_frame, _zstd_window_bytes)


class MembersDecoder:
    """Decodes gzip members, or zstd frames, one after the other, each of any length.

    A decompressor copies the bytes after the end of its member. So it is given few bytes where a
    member begins, and twice as many with each call inside it: the copies stay in proportion to the
    body.
    """

    def __init__(self, coding: _Coding) -> None:
        self._coding = coding
        self._member: _Member | None = None
        self._window_bytes = 0
        self._content_bytes = 0
        """How much of the member's content there has been."""
        self._slice_bytes = _FIRST_SLICE_BYTES
        self._data = memoryview(b"")
        self._position = 0

    @property
    def held_bytes(self) -> int:
        return len(self._data) + min(self._content_bytes, self._window_bytes)

    def feed(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    def read(self) -> Buffer:
        while self._position < len(self._data) or self._has_more:
            if piece := self._next_piece():
                return piece
        return b""

    @property
    def _has_more(self) -> bool:
        """Whether there is content to come of bytes that the decompressor has already."""
        return self._member is not None and not self._member.needs_input

    def _next_piece(self) -> bytes:
        if self._member is None:
            self._member = self._coding.begin()
            self._window_bytes = self._coding.window_bytes(self._data[self._position :])
            self._slice_bytes = _FIRST_SLICE_BYTES
        member, data = self._member, memoryview(b"")
        if member.needs_input:
            data = self._data[self._position : self._position + self._slice_bytes]
            self._slice_bytes = min(2 * self._slice_bytes, _SLICE_BYTES)
        try:
            piece = member.decompress(data, PIECE_BYTES)
        except (zlib.error, zstd.ZstdError) as error:
            raise MalformedRequest(f"the body is not {self._coding.name}: {error}") from None
        self._position += len(data)
        self._content_bytes += len(piece)
        if member.eof:
            self._position -= len(member.unused_data)
            self._member = None
            self._content_bytes = 0
        return piece

    def close(self) -> None:
        if self._member is not None:
            raise MalformedRequest(f"the body is not {self._coding.name}: it ends early")


_DECODERS: Final[Mapping[bytes, Callable[[], Decoder]]] = {
    IDENTITY: PlainDecoder,
    b"gzip": partial(MembersDecoder, _GZIP),
    b"x-gzip": partial(MembersDecoder, _GZIP),  # the same (RFC 9110, 8.4.1.3)
    b"zstd": partial(MembersDecoder, _ZSTD),
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
