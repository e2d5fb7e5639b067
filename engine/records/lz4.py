"""LZ4 frames exactly as Kafka writes and reads them, around the compressor of single blocks.

    4  magic 04 22 4d 18 1  FLG: version 01, independent blocks, flags for block checksums, content
    size and checksum 1  BD: the largest block, 64 KiB to 4 MiB 8  content size, if flagged 1  HC:
    second byte of xxHash32 over what stands between magic and HC n  blocks: little-endian size, its
    top bit set if stored uncompressed; bytes; xxHash32 if flagged 4  end mark, zero 4  content
    checksum, if flagged

Kafka's `Lz4BlockOutputStream` writes 64 KiB blocks, no flags and no checksums. Assembled here,
because then our bytes equal Kafka's; as its `Lz4BlockInputStream`, dependent blocks are refused and
the content checksum is passed over (the batch's own covers everything).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import cramjam

from engine.errors import CorruptBatch
from engine.records.budget import CHECK_EVERY, DecodeBudget
from engine.types import Buffer

DEFAULT_LEVEL: Final = 9  # Kafka's: the fast compressor; every other level is the thorough one

_MAGIC: Final = b"\x04\x22\x4d\x18"
_BLOCK_BYTES: Final = 64 * 1024
_WRITTEN_HEADER: Final = _MAGIC + b"\x60\x40\x82"  # FLG, BD and their hash
_END_MARK: Final = bytes(4)
_UINT32_LE: Final = struct.Struct("<I")
_STORED: Final = 0x8000_0000

_VERSION_MASK: Final = 0xC0
_VERSION_01: Final = 0x40
_INDEPENDENT: Final = 0x20
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_FLG_RESERVED: Final = 0x03
_BD_RESERVED: Final = 0x8F
_MIN_BLOCK_CODE: Final = 4  # 64 KiB; each code more is four times as much

_PRIME_1: Final = 0x9E3779B1
_PRIME_2: Final = 0x85EBCA77
_PRIME_3: Final = 0xC2B2AE3D
_PRIME_4: Final = 0x27D4EB2F
_PRIME_5: Final = 0x165667B1
_MASK: Final = 0xFFFF_FFFF


def compress_frame(data: Buffer, level: int | None = None) -> bytes:
    """Return one frame of 64 KiB blocks; a block that does not shrink is stored as it is."""
    view = memoryview(data)
    is_default = level is None or level == DEFAULT_LEVEL
    blocks = _fast_blocks(view) if is_default else _thorough_blocks(view, level)
    return b"".join((_WRITTEN_HEADER, *blocks, _END_MARK))


def decompress_frame(
    frame: Buffer,
    limit_bytes: int,
    budget: DecodeBudget | None = None,
    *,
    checks_hash: bool = True,
) -> bytearray:
    """Return what one frame holds, stopping with the block that passes `limit_bytes`."""
    content = bytearray()
    for index, piece in enumerate(frame_pieces(frame, limit_bytes, checks_hash=checks_hash)):
        if budget is not None and not index % CHECK_EVERY:
            budget.check()
        content += piece
    return content


def frame_pieces(
    frame: Buffer, limit_bytes: int, *, checks_hash: bool = True
) -> Iterator[memoryview]:
    """Yield the blocks of one frame, the last one that which passes `limit_bytes`.

    A block is valid until the next one. Raises `CorruptBatch` for what Kafka's reader refuses:
    another magic or version, reserved bits, dependent blocks, a wrong hash, a block larger than
    declared, bytes that end early. Bytes after the frame are refused too. One block, 4 MiB at most,
    is allocated beyond the limit. Without `checks_hash` the descriptor's may be wrong: Kafka's
    first writers hashed the magic with it.
    """
    view = memoryview(frame)
    flags, block_max, position = _read_descriptor(view, checks_hash=checks_hash)
    checksum_bytes = 4 if flags & _BLOCK_CHECKSUM else 0
    scratch = memoryview(bytearray(block_max))
    content_bytes = 0
    while (size := _read_uint32(view, position)) != 0:
        start, is_stored, size = position + 4, bool(size & _STORED), size & ~_STORED
        position = start + size + checksum_bytes
        if size > block_max or position > len(view):
            raise CorruptBatch(f"lz4 block of {size} bytes is too large or cut short")
        block = view[start : start + size]
        if checksum_bytes and _read_uint32(view, start + size) != xxhash32(block):
            raise CorruptBatch("lz4 block has a wrong checksum")
        raw = block if is_stored else _decompress_block(block, scratch)
        content_bytes += len(raw)
        yield raw
        if content_bytes > limit_bytes:
            return
    position += len(_END_MARK) + (4 if flags & _CONTENT_CHECKSUM else 0)
    if position != len(view):
        raise CorruptBatch(f"lz4 frame ends at byte {position} of {len(view)}")


def xxhash32(data: Buffer) -> int:
    """Return the 32-bit xxHash with seed 0."""
    view = memoryview(data)
    end = len(view) - len(view) % 16
    accumulator = _PRIME_5
    if end:
        lanes = [_PRIME_1 + _PRIME_2 & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK]
        for words in struct.iter_unpack("<4I", view[:end]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        accumulator = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    accumulator = accumulator + len(view) & _MASK
    words_end = end + (len(view) - end) // 4 * 4
    for (word,) in struct.iter_unpack("<I", view[end:words_end]):
        accumulator = _rotate(accumulator + word * _PRIME_3 & _MASK, 17) * _PRIME_4 & _MASK
    for byte in view[words_end:]:
        accumulator = _rotate(accumulator + byte * _PRIME_5 & _MASK, 11) * _PRIME_1 & _MASK
    for shift, prime in ((15, _PRIME_2), (13, _PRIME_3)):
        accumulator = (accumulator ^ accumulator >> shift) * prime & _MASK
    return accumulator ^ accumulator >> 16


def _fast_blocks(data: memoryview) -> Iterator[Buffer]:
    """Yield size and bytes of each block, as Kafka's default compressor makes them."""
    for start in range(0, len(data), _BLOCK_BYTES):
        raw = data[start : start + _BLOCK_BYTES]
        block = memoryview(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            yield _UINT32_LE.pack(len(block))
            yield block
        else:
            yield _UINT32_LE.pack(len(raw) | _STORED)
            yield raw


def _thorough_blocks(data: memoryview, level: int | None) -> Iterator[Buffer]:
    """Yield the blocks of a frame that the library made, without the checksums that it adds.

    Its compressor of single blocks knows no levels.
    """
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    frame = memoryview(compressor.finish())
    flags, block_max, position = _read_descriptor(frame)
    assert block_max == _BLOCK_BYTES, "the descriptor that we write must hold"
    while size := _read_uint32(frame, position):
        end = position + 4 + (size & ~_STORED)
        yield frame[position:end]
        position = end + (4 if flags & _BLOCK_CHECKSUM else 0)


def _decompress_block(block: memoryview, scratch: memoryview) -> memoryview:
    try:
        return scratch[: cramjam.lz4.decompress_block_into(block, scratch)]
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"lz4 block is damaged: {error}") from error


def _read_descriptor(view: memoryview, *, checks_hash: bool = True) -> tuple[int, int, int]:
    """Return the flags, the size of the largest block and the position of the first."""
    if len(view) < len(_WRITTEN_HEADER) or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise CorruptBatch("lz4 frame does not start with its magic")
    flags, block_descriptor = view[4], view[5]
    if flags & _VERSION_MASK != _VERSION_01 or not flags & _INDEPENDENT:
        raise CorruptBatch(f"lz4 flags {flags:#04x}: only version 1 with independent blocks")
    code = block_descriptor >> 4
    if flags & _FLG_RESERVED or block_descriptor & _BD_RESERVED or code < _MIN_BLOCK_CODE:
        raise CorruptBatch(f"lz4 descriptor {flags:#04x} {block_descriptor:#04x} is undefined")
    hash_position = 14 if flags & _CONTENT_SIZE else 6
    if len(view) <= hash_position:
        raise CorruptBatch("lz4 frame ends inside its descriptor")
    if checks_hash and view[hash_position] != xxhash32(view[4:hash_position]) >> 8 & 0xFF:
        raise CorruptBatch("lz4 descriptor has a wrong hash")
    return flags, _BLOCK_BYTES << 2 * (code - _MIN_BLOCK_CODE), hash_position + 1


def _read_uint32(view: memoryview, position: int) -> int:
    if position + 4 > len(view):
        raise CorruptBatch("lz4 frame ends before its end mark")
    return int(_UINT32_LE.unpack_from(view, position)[0])


def _round(lane: int, word: int) -> int:
    return _rotate(lane + word * _PRIME_2 & _MASK, 13) * _PRIME_1 & _MASK


def _rotate(value: int, by: int) -> int:
    return value << by & _MASK | value >> 32 - by
