"""zstd: one or more RFC 8878 frames, with the standard library's module or its backport."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from engine.errors import CorruptBatch
from engine.records.codecs.bounds import PIECE_BYTES, SLICE_BYTES
from engine.types import Buffer

if sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

__all__ = ["compress", "pieces", "zstd"]  # app.codecs decodes bodies with the same module

_DEFAULT_LEVEL: Final = 3
_SKIPPABLE_MAGIC: Final = b"\x2a\x4d\x18"  # after a byte from 50 to 5f


def compress(data: Buffer, level: int | None) -> bytes:
    """Return one frame."""
    return zstd.compress(data, _DEFAULT_LEVEL if level is None else level)


def pieces(data: Buffer, limit_bytes: int) -> Iterator[bytes]:  # noqa: ARG001 - one signature
    """Yield the content of the frames; raise `CorruptBatch` unless the data is whole frames."""
    view = memoryview(data)
    position = 0
    try:
        while True:
            end = position + zstd.get_frame_size(view[position:])
            if bytes(view[position + 1 : position + 4]) == _SKIPPABLE_MAGIC:
                yield b""
            else:
                yield from _frame_pieces(view[position:end])
            position = end
            if position == len(view):
                return
    except zstd.ZstdError as error:
        raise CorruptBatch(f"zstd payload is damaged: {error}") from error


def _frame_pieces(frame: memoryview) -> Iterator[bytes]:
    decoder = zstd.ZstdDecompressor()
    for start in range(0, len(frame), SLICE_BYTES):
        yield decoder.decompress(frame[start : start + SLICE_BYTES], PIECE_BYTES)
        while not (decoder.needs_input or decoder.eof):
            yield decoder.decompress(b"", PIECE_BYTES)
    assert decoder.eof, "a frame ends with its last byte"
