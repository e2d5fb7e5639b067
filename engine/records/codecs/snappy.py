"""Snappy as Kafka's clients write it.

The Java client writes the xerial stream: `82 "SNAPPY" 00`, two int32 versions, then blocks of int32
length and raw snappy, big-endian, 32 KiB of input each. Data without that magic is one raw block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import cramjam

from engine.errors import CorruptBatch
from engine.records.codecs.bounds import too_large
from engine.types import Buffer

_MAGIC: Final = b"\x82SNAPPY\x00"
_HEADER: Final = _MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible
_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")


def compress(data: Buffer, level: int | None) -> bytes:  # noqa: ARG001 - it has no levels
    """Return a xerial stream."""
    view = memoryview(data)
    parts: list[Buffer] = [_HEADER]
    for start in range(0, len(view), _BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def bound(data: Buffer, limit_bytes: int) -> int:
    """Return the size that the blocks declare, or a number above the limit."""
    view = memoryview(data)
    size_bytes = 0
    try:
        for block in _blocks(view):
            size_bytes += cramjam.snappy.decompress_raw_len(block)
            if size_bytes > limit_bytes:
                break
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy payload is damaged: {error}") from error
    return size_bytes


def pieces(data: Buffer, limit_bytes: int) -> Iterator[bytearray]:
    """Yield the content of each block.

    Raises `CorruptBatch` for damage, and `TooLarge` before allocating more than the limit.
    """
    view = memoryview(data)
    size_bytes = 0
    try:
        for block in _blocks(view):
            block_bytes = cramjam.snappy.decompress_raw_len(block)
            size_bytes += block_bytes
            if size_bytes > limit_bytes:
                raise too_large(limit_bytes, size_bytes)
            content = bytearray(block_bytes)
            cramjam.snappy.decompress_raw_into(block, content)
            yield content
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy payload is damaged: {error}") from error


def _blocks(view: memoryview) -> Iterable[memoryview]:
    return _xerial_blocks(view) if bytes(view[: len(_MAGIC)]) == _MAGIC else (view,)


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks of a xerial stream, none of them empty."""
    position = len(_HEADER)
    while position < len(view):
        start = position + _INT32.size
        size = _INT32.unpack_from(view, position)[0] if start <= len(view) else 0
        position = start + size
        if size <= 0 or position > len(view):
            raise CorruptBatch(f"snappy block of {size} bytes at {start} does not fit")
        yield view[start:position]
    if position != len(view):
        raise CorruptBatch("snappy payload ends inside its header")
