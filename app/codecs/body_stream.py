"""Decodes Content-Encoding piece by piece: for whole bodies, and for those of any length.

Bodies of any length are cut into lines; their memory is bounded: one received piece, one decoded
piece, and the lines of one part.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

import cramjam

from app.errors import MalformedRequest, UnsupportedMediaType, body_too_large
from app.http.answers import Body
from engine.errors import TooLarge
from engine.records.budget import DecodeBudget
from engine.records.codecs.zstd import zstd
from engine.types import Buffer

IDENTITY: Final = b"identity"
SNAPPY: Final = b"snappy"

PIECE_BYTES: Final = 256 * 1024
"""Decoded pieces have this size, however much a few bytes expand to."""

FED_BYTES: Final = 64 * 1024
"""A whole body is fed in pieces of this size; the budget is checked between them."""

_ZSTD_WINDOW_BITS: Final = 23  # 8 MiB, the maximum for a content coding (RFC 9659)
_ZSTD_OPTIONS: Final[Mapping[int, int]] = {
    zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_BITS
}
_ZSTD_HEAD_BYTES: Final = 6  # magic, descriptor, window
_ZSTD_SINGLE_SEGMENT: Final = 0x20  # then the content is the window, and this byte is absent
_GZIP_WINDOW_BITS: Final = 15
_GZIP_CONTAINER: Final = 16  # added to the window bits: zlib then expects a gzip header
_FIRST_SLICE_BYTES: Final = 512
_SLICE_BYTES: Final = 64 * 1024
_LIMIT: Final = "max_request_bytes"

MAX_SMALL_MEMBERS: Final = 1_000
"""Of gzip members or zstd frames with fewer than `SMALL_BYTES` of content, on average: each costs
some 20 µs to begin, and takes only eight bytes of a body."""

SMALL_BYTES: Final = 64


class Decoder(Protocol):
    """Decodes a body's Content-Encoding."""

    @property
    def held_bytes(self) -> int:
        """Buffered bytes that were fed."""
        ...

    def feed(self, data: bytes) -> None:
        """Feed the next bytes."""
        ...

    def read(self) -> Buffer:
        """Return the next decoded piece; empty if more has to be fed first.

        Raises MalformedRequest for damage, and for content that cannot be decoded in bounds.
        """
        ...

    def close(self) -> None:
        """Raise MalformedRequest if the body ended too early."""
        ...


def decoder_of(encoding: bytes) -> Decoder:
    """Return the decoder of this Content-Encoding; raises UnsupportedMediaType without one."""
    make = _DECODERS.get(encoding.strip().lower())
    if make is None:
        raise UnsupportedMediaType(
            f"Content-Encoding {encoding.decode('latin-1')} is not accepted",
            headers={"accept-encoding": "gzip, zstd"},
            accepted_encodings=["gzip", "identity", "zstd"],
        )
    return make()


def decode_body(
    body: Body, encoding: bytes, *, limit: tuple[str, int], budget: DecodeBudget
) -> bytearray:
    """Return a whole decoded body, at most as large as the limit of a body.

    Raises as `decoder_of`, its decoder and the budget; TooLarge beyond the limit. Only a whole body
    can be one raw block of Snappy, which is what Prometheus sends: it has its size in front.
    """
    if encoding.strip().lower() == SNAPPY:
        return _raw_snappy(body, limit=limit, budget=budget)
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


def _raw_snappy(body: Body, *, limit: tuple[str, int], budget: DecodeBudget) -> bytearray:
    try:
        size_bytes = cramjam.snappy.decompress_raw_len(body)
        if size_bytes > limit[1]:
            raise body_too_large(limit, size_bytes)
        budget.check()
        budget.take(size_bytes)
        content = bytearray(size_bytes)
        cramjam.snappy.decompress_raw_into(body, content)
    except cramjam.DecompressionError as error:
        raise MalformedRequest(f"the body is not one raw block of Snappy: {error}") from error
    return content


class PlainDecoder:
    """Returns its input unchanged."""

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
        """Do nothing: the body cannot be incomplete."""


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
    """zlib's decompressor; the caller keeps unused input."""

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
    """Return the window in a frame's header; the largest one if it is not given."""
    if len(head) < _ZSTD_HEAD_BYTES or head[4] & _ZSTD_SINGLE_SEGMENT:
        return 1 << _ZSTD_WINDOW_BITS
    exponent, mantissa = divmod(head[5], 8)
    return (8 + mantissa) << 7 + exponent


class _Coding(NamedTuple):
    name: str
    begin: Callable[[], _Member]
    window_bytes: Callable[[memoryview], int]
    """Window size of a member with this header: the decompressor holds it in memory."""


_GZIP: Final = _Coding("gzip", _GzipMember, lambda _: 1 << _GZIP_WINDOW_BITS)
_ZSTD: Final = _Coding("zstd", _zstd_frame, _zstd_window_bytes)


class MembersDecoder:
    """Decodes gzip members, or zstd frames, one after the other, each of any length.

    A decompressor copies the bytes after the end of its member. So it gets few bytes at the start
    of a member, and twice as many with each call inside it: the copies stay proportional to the
    body.
    """

    def __init__(self, coding: _Coding) -> None:
        self._coding = coding
        self._member: _Member | None = None
        self._window_bytes = 0
        self._content_bytes = 0
        """Decoded bytes of the current member."""
        self._owed_members = 0.0
        """Members so far, less what their content pays for."""
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
        """Whether the decompressor has input left that yields content."""
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
            self._count(self._content_bytes)
            self._content_bytes = 0
        return piece

    def _count(self, content_bytes: int) -> None:
        self._owed_members = max(0.0, self._owed_members + 1 - content_bytes / SMALL_BYTES)
        if self._owed_members > MAX_SMALL_MEMBERS:
            raise MalformedRequest(
                f"the body has more than {MAX_SMALL_MEMBERS} {self._coding.name} members with "
                f"fewer than {SMALL_BYTES} bytes each: compress more of it at once"
            )

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
    """Cuts added bytes into parts of whole lines, of `part_bytes` or one longer line each."""

    def __init__(self, part_bytes: int, limit_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._limit_bytes = limit_bytes
        self._held = bytearray()
        self._searched = 0  # below it, all line breaks are before `part_bytes`

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
            # Also of a whole line: how the network cut the body must not decide.
            line_bytes = end - 1 if end else len(self._held)
            if line_bytes > self._limit_bytes:
                raise TooLarge(
                    f"a line is longer than {_LIMIT} ({self._limit_bytes})",
                    limit=_LIMIT,
                    limit_bytes=self._limit_bytes,
                    actual_bytes=line_bytes,
                )
        return self._take(end) if end else None

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
