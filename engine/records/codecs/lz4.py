"""LZ4 frames as Kafka writes and reads them.

    4  magic 04 22 4d 18
    1  FLG: version 01, independent blocks, flags for block checksums, content size and checksum
    1  BD: the largest block, 64 KiB to 4 MiB
    8  content size, if flagged
    1  HC: second byte of xxHash32 over the bytes between magic and HC
    n  blocks, an end mark and, if flagged, the content checksum

Kafka's `Lz4BlockOutputStream` writes independent 64 KiB blocks without checksums, and the library
writes the same bytes. Kafka's `Lz4BlockInputStream` is stricter than the library, which accepts
dependent blocks and skippable frames, and more tolerant, because it ignores content size and
content checksum (the checksum of the batch covers everything). So this module checks the
descriptor, and gives the library a plain one instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import lz4.frame as library

from engine.errors import CorruptBatch
from engine.records.codecs.bounds import SLICE_BYTES
from engine.types import Buffer

DEFAULT_LEVEL: Final = 9  # Kafka's: the fast compressor; other levels use LZ4 HC
_FAST_LEVEL: Final = 0  # the library's

_MAGIC: Final = b"\x04\x22\x4d\x18"
_PIECE_BYTES: Final = 256 * 1024  # the library allocates this much and copies from it

_MOST_GROWTH: Final = 255
"""The largest expansion of one byte of a block."""

_VERSION_AND_INDEPENDENT_BLOCKS: Final = 0x60
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_FLG_FIXED: Final = 0xE3  # version, independent blocks and the reserved bits
_BD_RESERVED: Final = 0x8F
_MIN_BLOCK_CODE: Final = 4  # 64 KiB; each further code is four times as much


def compress(data: Buffer, level: int | None) -> bytes:
    """Return one frame of 64 KiB blocks; incompressible blocks are stored."""
    frame: bytes = library.compress(
        data,
        compression_level=_FAST_LEVEL if level in (None, DEFAULT_LEVEL) else level,
        block_size=library.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


def bound(data: Buffer, limit_bytes: int) -> int:  # noqa: ARG001 - one signature
    """Return an upper bound of the decompressed size."""
    return _MOST_GROWTH * len(data)


def pieces(data: Buffer, limit_bytes: int, *, checks_hash: bool = True) -> Iterator[bytes]:
    """Yield the content of one frame; raise `CorruptBatch` for what Kafka's reader refuses.

    Bytes after the frame are refused too. Without `checks_hash` the descriptor's hash may be wrong,
    because Kafka's first writers included the magic in it.
    """
    view = memoryview(data)
    flags, block_code, position = _read_descriptor(view, checks_hash=checks_hash)
    context = library.create_decompression_context()
    library.decompress_chunk(context, _plain_descriptor(block_code, bool(flags & _BLOCK_CHECKSUM)))
    piece_bytes = min(_PIECE_BYTES, limit_bytes + 1)
    is_over = False
    while not is_over:
        try:
            piece, read_bytes, is_over = library.decompress_chunk(
                context, view[position : position + SLICE_BYTES], max_length=piece_bytes
            )
        except RuntimeError as error:
            raise CorruptBatch(f"lz4 frame is damaged: {error}") from error
        if not piece and not read_bytes:
            raise CorruptBatch("lz4 frame ends before its end mark")
        position += read_bytes
        yield piece
    position += 4 if flags & _CONTENT_CHECKSUM else 0
    if position != len(view):
        raise CorruptBatch(f"lz4 frame ends at byte {position} of {len(view)}")


def _read_descriptor(view: memoryview, *, checks_hash: bool) -> tuple[int, int, int]:
    """Return the flags, the block size code, and the position of the first block."""
    if bytes(view[: len(_MAGIC)]) != _MAGIC or len(view) <= len(_MAGIC) + 1:
        raise CorruptBatch("lz4 frame does not start with its magic")
    flags, block_descriptor = view[4], view[5]
    if flags & _FLG_FIXED != _VERSION_AND_INDEPENDENT_BLOCKS:
        raise CorruptBatch(f"lz4 flags {flags:#04x}: only version 1 with independent blocks")
    block_code = block_descriptor >> 4
    if block_descriptor & _BD_RESERVED or block_code < _MIN_BLOCK_CODE:
        raise CorruptBatch(f"lz4 descriptor {flags:#04x} {block_descriptor:#04x} is undefined")
    end = 15 if flags & _CONTENT_SIZE else 7
    if len(view) < end:
        raise CorruptBatch("lz4 frame ends inside its descriptor")
    if checks_hash:
        try:
            library.get_frame_info(view[:end])
        except RuntimeError as error:
            raise CorruptBatch(f"lz4 descriptor has a wrong hash: {error}") from error
    return flags, block_code, end


@cache
def _plain_descriptor(block_code: int, has_block_checksums: bool) -> bytes:  # noqa: FBT001 - a key
    """Return the descriptor of a frame that has neither content size nor content checksum."""
    descriptor: bytes = library.compress_begin(
        library.create_compression_context(),
        block_size=block_code,
        block_linked=False,
        block_checksum=has_block_checksums,
    )
    return descriptor
