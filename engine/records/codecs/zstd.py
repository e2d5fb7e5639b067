"""zstd: one or more RFC 8878 frames, with the standard library's module or its backport."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from engine.errors import CorruptBatch
from engine.records.codecs.bounds import PIECE_BYTES, SLICE_BYTES
from engine.types import Buffer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["compress", "pieces", "zstd"]  # app.codecs decodes bodies with it

_DEFAULT_LEVEL: Final = 3
_SKIPPABLE_MAGIC: Final = b"\x2a\x4d\x18"  # after a byte from 50 to 5f


def compress(data: Buffer, level: int | None) -> bytes:
    """Return one frame."""
    return zstd.compress(data, _DEFAULT_LEVEL if level is None else level)


def bound(data: Buffer, limit_bytes: int) -> int:
    """Return the size that the frames declare; the limit if one does not declare it."""
    size_bytes = 0
    try:
        for frame in _frames(memoryview(data)):
            if frame:
                size: int | None = zstd.get_frame_info(frame).decompressed_size
                size_bytes += limit_bytes if size is None else size
            if size_bytes >= limit_bytes:
                break
    except zstd.ZstdError as error:
        raise _damage(error) from error
    return size_bytes


def pieces(data: Buffer, limit_bytes: int) -> Iterator[bytes]:
    """Yield the content of the frames; raise `CorruptBatch` unless the data is whole frames."""
    try:
        for frame in _frames(memoryview(data)):
            if frame:
                yield from _frame_pieces(frame, min(PIECE_BYTES, limit_bytes + 1))
            else:
                yield b""
    except zstd.ZstdError as error:
        raise _damage(error) from error


def _frames(view: memoryview) -> Iterator[memoryview]:
    """Yield the frames, empty for a skippable one."""
    position = 0
    while True:
        end = position + zstd.get_frame_size(view[position:])
        is_skippable = bytes(view[position + 1 : position + 4]) == _SKIPPABLE_MAGIC
        yield view[:0] if is_skippable else view[position:end]
        position = end
        if position == len(view):
            return


def _damage(error: zstd.ZstdError) -> CorruptBatch:
    return CorruptBatch(f"zstd payload is damaged: {error}")


def _frame_pieces(frame: memoryview, piece_bytes: int) -> Iterator[bytes]:
    decoder = zstd.ZstdDecompressor()
    for start in range(0, len(frame), SLICE_BYTES):
        yield decoder.decompress(frame[start : start + SLICE_BYTES], piece_bytes)
        while not (decoder.needs_input or decoder.eof):
            yield decoder.decompress(b"", piece_bytes)
    assert decoder.eof, "a frame ends with its last byte"
