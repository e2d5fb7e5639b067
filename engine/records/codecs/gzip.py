"""gzip: one RFC 1952 member."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from engine.errors import CorruptBatch
from engine.records.codecs.bounds import PIECE_BYTES, SLICE_BYTES
from engine.types import Buffer

_WINDOW_BITS: Final = 31  # a window of 2**15 bytes, and 16 for the gzip container

_MOST_GROWTH: Final = 1032
"""The largest expansion of one byte of deflate."""


def compress(data: Buffer, level: int | None) -> bytes:
    """Return one member."""
    return zlib.compress(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, _WINDOW_BITS)


def bound(data: Buffer, limit_bytes: int) -> int:  # noqa: ARG001 - one signature
    """Return an upper bound of the decompressed size."""
    return _MOST_GROWTH * len(data)


def pieces(data: Buffer, limit_bytes: int) -> Iterator[bytes]:
    """Yield the content; raise `CorruptBatch` unless the data is exactly one member."""
    view = memoryview(data)
    inflater = zlib.decompressobj(_WINDOW_BITS)
    piece_bytes = min(PIECE_BYTES, limit_bytes + 1)
    position = 0
    while not inflater.eof:
        # zlib copies unused input, so it gets one slice at a time.
        end = min(position + SLICE_BYTES, len(view))
        try:
            piece = inflater.decompress(view[position:end], piece_bytes)
        except zlib.error as error:
            raise CorruptBatch(f"gzip payload is damaged: {error}") from error
        if not piece and position == len(view):
            break
        position = end - len(inflater.unconsumed_tail) - len(inflater.unused_data)
        yield piece
    if not inflater.eof or position != len(view):
        raise CorruptBatch("gzip payload is not exactly one member")
