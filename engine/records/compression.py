"""The codecs of record batches in Kafka's framings, decompression bounded by a limit.

    none    as it is
    gzip    one RFC 1952 member
    snappy  the xerial stream: `82 "SNAPPY" 00`, two int32 versions, then blocks of int32 length and
            raw snappy, 32 KiB of input each, big-endian; without that magic, one raw block
    lz4     one LZ4 frame of independent 64 KiB blocks, see `lz4`
    zstd    one or more RFC 8878 frames

Content decides the size of what is decompressed: 12 KB can hold 400 MB. So nothing here allocates
more than the caller's limit for a result (lz4: one block more). `decompress` returns all of it,
`decompressed_pieces` yields it in pieces of about a megabyte.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

import cramjam
import zstandard

from engine.errors import CorruptBatch, TooLarge
from engine.records.budget import CHECK_EVERY, DecodeBudget
from engine.records.header import Codec
from engine.records.lz4 import compress_frame, decompress_frame, frame_pieces
from engine.records.zstd_frame import content_bound
from engine.types import Buffer

DEFAULT_DECOMPRESSED_LIMIT_BYTES: Final = 64 * 1024 * 1024
DECOMPRESSED_LIMIT_NAME: Final = "max_decompressed_batch_bytes"  # as in engine.config

PIECE_BYTES: Final = 1024 * 1024
"""What `decompressed_pieces` holds at once, give or take one block of the codec."""

_SLICE_BYTES: Final = 64 * 1024  # of gzip: zlib copies what it was given and did not need
_ZSTD_WINDOW_MAX_BYTES: Final = 128 * 1024 * 1024  # the default of zstd, and of Kafka's clients

_GZIP_WINDOW_BITS: Final = 31  # a window of 2**15 bytes, and 16 for the gzip container
_NOT_ONE_MEMBER: Final = "gzip payload is not exactly one member"
_ZSTD_LEVEL: Final = 3

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return the bytes in the codec's framing; `level` means Kafka's default if None."""
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: Codec,
    data: Buffer,
    limit_bytes: int,
    *,
    checks_lz4_hash: bool = True,
    budget: DecodeBudget | None = None,
) -> memoryview:
    """Return what the bytes hold, at most `limit_bytes`.

    Raises `CorruptBatch` if they are damaged, cut short or followed by others, `TooLarge` beyond
    the limit, `DecodeBudgetSpent` beyond the budget. Only messages of magic 0 have LZ4 frames whose
    hash must not be checked.
    """
    bound = limit_bytes if budget is None else min(limit_bytes, budget.left_bytes)
    try:
        if codec is Codec.LZ4 and not checks_lz4_hash:
            content: Buffer = decompress_frame(data, bound, checks_hash=False)
        else:
            content = _DECOMPRESSORS[codec](data, bound, budget)
        if len(content) > bound:
            _refuse_size(bound, len(content))
    except TooLarge:
        if budget is not None and bound < limit_bytes:
            raise budget.bytes_spent() from None
        raise
    if budget is not None:
        budget.take(len(content))
    return memoryview(content)


def decompressed_pieces(
    codec: Codec, data: Buffer, limit_bytes: int, budget: DecodeBudget | None = None
) -> Iterator[Buffer]:
    """Yield what `decompress` returns of compressed bytes, decoding only as much as is asked for.

    A piece is valid until the next one. The budget is told of each piece. Raises as `decompress`,
    where the fault is met, but for a spent budget.
    """
    size_bytes = 0
    for piece in _PIECES[codec](data, limit_bytes):
        size_bytes += len(piece)
        if size_bytes > limit_bytes:
            _refuse_size(limit_bytes, size_bytes)
        if budget is not None:
            budget.spend(len(piece))
        yield piece


def _refuse_size(limit_bytes: int, actual_bytes: int) -> NoReturn:
    raise TooLarge(
        f"the records take more than {limit_bytes} bytes when decompressed",
        limit=DECOMPRESSED_LIMIT_NAME,
        limit_bytes=limit_bytes,
        actual_bytes=actual_bytes,
    )


def _compress_none(data: Buffer, level: int | None) -> bytes:  # noqa: ARG001 - one signature
    return bytes(data)


def _decompress_none(
    data: Buffer,
    limit_bytes: int,  # noqa: ARG001 - one signature
    budget: DecodeBudget | None,  # noqa: ARG001 - one signature
) -> Buffer:
    return data


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    return zlib.compress(
        data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, _GZIP_WINDOW_BITS
    )


def _decompress_gzip(
    data: Buffer,
    limit_bytes: int,
    budget: DecodeBudget | None,  # noqa: ARG001 - one signature
) -> Buffer:
    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        content = inflater.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise CorruptBatch(f"gzip payload is damaged: {error}") from error
    if len(content) <= limit_bytes and (not inflater.eof or inflater.unused_data):
        raise CorruptBatch(_NOT_ONE_MEMBER)
    return content


def _gzip_pieces(data: Buffer, limit_bytes: int) -> Iterator[Buffer]:  # noqa: ARG001 - one signature
    view = memoryview(data)
    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
    position = 0
    while not inflater.eof:
        end = min(position + _SLICE_BYTES, len(view))
        try:
            piece = inflater.decompress(view[position:end], PIECE_BYTES)
        except zlib.error as error:
            raise CorruptBatch(f"gzip payload is damaged: {error}") from error
        if not piece and position == len(view):
            break
        position = end - len(inflater.unconsumed_tail) - len(inflater.unused_data)
        yield piece
    if not inflater.eof or position != len(view):
        raise CorruptBatch(_NOT_ONE_MEMBER)


def _compress_snappy(data: Buffer, level: int | None) -> bytes:  # noqa: ARG001 - it has no levels
    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int, budget: DecodeBudget | None) -> Buffer:
    blocks = _snappy_blocks(data, limit_bytes)
    content = bytearray(sum(size for _, size in blocks))
    position = 0
    try:
        for index, (block, size) in enumerate(blocks):
            if budget is not None and not index % CHECK_EVERY:
                budget.check()
            target = memoryview(content)[position : position + size]
            cramjam.snappy.decompress_raw_into(block, target)
            position += size
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy payload is damaged: {error}") from error
    return content


def _snappy_pieces(data: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    for block, size in _snappy_blocks(data, limit_bytes):
        content = bytearray(size)
        try:
            cramjam.snappy.decompress_raw_into(block, content)
        except cramjam.DecompressionError as error:
            raise CorruptBatch(f"snappy payload is damaged: {error}") from error
        yield content


def _snappy_blocks(data: Buffer, limit_bytes: int) -> list[tuple[memoryview, int]]:
    """Return the raw blocks, and what each says that it holds: no more than the limit in all."""
    view = memoryview(data)
    is_xerial = bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    blocks = _xerial_blocks(view) if is_xerial else [view]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy payload is damaged: {error}") from error
    if sum(sizes) > limit_bytes:
        _refuse_size(limit_bytes, sum(sizes))
    return list(zip(blocks, sizes, strict=True))


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """Return the raw blocks of a xerial stream, none of them empty."""
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        start = position + _INT32.size
        size = _INT32.unpack_from(view, position)[0] if start <= len(view) else 0
        position = start + size
        if size <= 0 or position > len(view):
            raise CorruptBatch(f"snappy block of {size} bytes at {start} does not fit")
        blocks.append(view[start:position])
    if position != len(view):
        raise CorruptBatch("snappy payload ends inside its header")
    return blocks


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def _decompress_zstd(data: Buffer, limit_bytes: int, budget: DecodeBudget | None) -> Buffer:
    """Decompress into one buffer as large as the frames can need, within the limit."""
    return _zstd_whole(data, content_bound(memoryview(data), budget), limit_bytes)


def _zstd_whole(data: Buffer, bound: int, limit_bytes: int) -> Buffer:
    content = bytearray(min(bound, limit_bytes))
    try:
        size = cramjam.zstd.decompress_into(data, content)
    except cramjam.DecompressionError as error:
        if bound > limit_bytes:  # too small a buffer and damage raise the same error
            _refuse_size(limit_bytes, bound)
        raise CorruptBatch(f"zstd payload is damaged: {error}") from error
    return memoryview(content)[:size]


def _zstd_pieces(data: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    bound = content_bound(memoryview(data))
    if bound <= PIECE_BYTES:
        yield _zstd_whole(data, bound, limit_bytes)
        return
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX_BYTES)
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as stream:
            while piece := stream.read(PIECE_BYTES):
                yield piece
    except zstandard.ZstdError as error:
        raise CorruptBatch(f"zstd payload is damaged: {error}") from error


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: compress_frame,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: Final[dict[Codec, Callable[[Buffer, int, DecodeBudget | None], Buffer]]] = {
    Codec.NONE: _decompress_none,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: decompress_frame,
    Codec.ZSTD: _decompress_zstd,
}
_PIECES: Final[dict[Codec, Callable[[Buffer, int], Iterator[Buffer]]]] = {
    Codec.GZIP: _gzip_pieces,
    Codec.SNAPPY: _snappy_pieces,
    Codec.LZ4: frame_pieces,
    Codec.ZSTD: _zstd_pieces,
}
assert _COMPRESSORS.keys() == _DECOMPRESSORS.keys() == set(Codec)
assert _PIECES.keys() == set(Codec) - {Codec.NONE}, "what is not compressed is there already"
