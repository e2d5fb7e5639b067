"""The codecs of record batches in Kafka's framings, decompression bounded by a limit.

    none    as it is
    gzip    one RFC 1952 member
    snappy  the xerial stream: `82 "SNAPPY" 00`, two int32 versions, then blocks of int32 length and
            raw snappy, 32 KiB of input each, big-endian; without that magic, one raw block
    lz4     one LZ4 frame of independent 64 KiB blocks, see `lz4`
    zstd    one or more RFC 8878 frames

Content decides the size of what is decompressed: 12 KB can hold 400 MB. So nothing here allocates
more than the caller's limit for a result (lz4: one block more).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final, NoReturn

import cramjam

from engine.errors import CorruptBatch, TooLarge
from engine.records.header import Codec
from engine.records.lz4 import compress_frame, decompress_frame
from engine.types import Buffer

DEFAULT_DECOMPRESSED_LIMIT_BYTES: Final = 64 * 1024 * 1024
DECOMPRESSED_LIMIT_NAME: Final = "max_decompressed_batch_bytes"  # as in engine.config

_GZIP_WINDOW_BITS: Final = 31  # a window of 2**15 bytes, and 16 for the gzip container
_ZSTD_LEVEL: Final = 3

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50  # to ...5F
_ZSTD_BLOCK_MAX_BYTES: Final = 128 * 1024
_ZSTD_SIZE_WIDTHS: Final = (0, 2, 4, 8)
_ZSTD_DICTIONARY_WIDTHS: Final = (0, 1, 2, 4)
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED = range(3)


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return the bytes in the codec's framing; `level` means Kafka's default if None."""
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: Codec, data: Buffer, limit_bytes: int, *, checks_lz4_hash: bool = True
) -> memoryview:
    """Return what the bytes hold, at most `limit_bytes`.

    Raises `CorruptBatch` if they are damaged, cut short or followed by others, `TooLarge` beyond
    the limit. Only messages of magic 0 have LZ4 frames whose hash must not be checked.
    """
    if codec is Codec.LZ4 and not checks_lz4_hash:
        content: Buffer = decompress_frame(data, limit_bytes, checks_hash=False)
    else:
        content = _DECOMPRESSORS[codec](data, limit_bytes)
    if len(content) > limit_bytes:
        _refuse_size(limit_bytes, len(content))
    return memoryview(content)


def _refuse_size(limit_bytes: int, actual_bytes: int) -> NoReturn:
    raise TooLarge(
        f"the records take more than {limit_bytes} bytes when decompressed",
        limit=DECOMPRESSED_LIMIT_NAME,
        limit_bytes=limit_bytes,
        actual_bytes=actual_bytes,
    )


def _compress_none(data: Buffer, level: int | None) -> bytes:  # noqa: ARG001 - one signature
    return bytes(data)


def _decompress_none(data: Buffer, limit_bytes: int) -> Buffer:  # noqa: ARG001 - one signature
    return data


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    return zlib.compress(
        data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, _GZIP_WINDOW_BITS
    )


def _decompress_gzip(data: Buffer, limit_bytes: int) -> Buffer:
    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        content = inflater.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise CorruptBatch(f"gzip payload is damaged: {error}") from error
    if len(content) <= limit_bytes and (not inflater.eof or inflater.unused_data):
        raise CorruptBatch("gzip payload is not exactly one member")
    return content


def _compress_snappy(data: Buffer, level: int | None) -> bytes:  # noqa: ARG001 - it has no levels
    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> Buffer:
    view = memoryview(data)
    is_xerial = bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    blocks = _xerial_blocks(view) if is_xerial else [view]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        total = sum(sizes)
        if total > limit_bytes:
            _refuse_size(limit_bytes, total)
        content = bytearray(total)
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            target = memoryview(content)[position : position + size]
            cramjam.snappy.decompress_raw_into(block, target)
            position += size
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy payload is damaged: {error}") from error
    return content


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


def _decompress_zstd(data: Buffer, limit_bytes: int) -> Buffer:
    """Decompress into one buffer as large as the frames can need, within the limit."""
    bound = _zstd_bound(memoryview(data))
    content = bytearray(min(bound, limit_bytes))
    try:
        size = cramjam.zstd.decompress_into(data, content)
    except cramjam.DecompressionError as error:
        if bound > limit_bytes:  # too small a buffer and damage raise the same error
            _refuse_size(limit_bytes, bound)
        raise CorruptBatch(f"zstd payload is damaged: {error}") from error
    return memoryview(content)[:size]


def _zstd_bound(view: memoryview) -> int:
    """Return how many bytes the frames hold at most, from their frame and block headers alone."""
    bound = position = 0
    try:
        while position < len(view):
            frame_bound, position = _zstd_frame_bound(view, position)
            bound += frame_bound
    except IndexError:
        position = len(view) + 1
    if position != len(view) or not position:
        raise CorruptBatch("zstd payload ends early")
    return bound


class ZstdFrame:
    """The extent of one zstd frame whose bytes are still coming; none of them is read twice."""

    def __init__(self) -> None:
        self._position = 0
        self._trailer_bytes = 0
        self._is_last = False

    def end_in(self, data: Buffer) -> int | None:
        """Return where the frame ends in the bytes that are there so far, None if beyond them.

        Raises `CorruptBatch` if they begin with no frame.
        """
        view = memoryview(data)
        try:
            if not self._position:
                self._begin(view)
            while not self._is_last:
                _, self._position, self._is_last = _zstd_block(view, self._position)
        except IndexError:
            return None
        end = self._position + self._trailer_bytes
        return end if end <= len(view) else None

    def _begin(self, view: memoryview) -> None:
        end = _zstd_skippable_end(view, 0)
        if end is not None:
            self._position, self._is_last = end, True
            return
        _, self._position, self._trailer_bytes = _zstd_blocks_start(view, 0)


def _zstd_frame_bound(view: memoryview, position: int) -> tuple[int, int]:
    """Return the most that the frame at `position` can hold, and where it ends."""
    end = _zstd_skippable_end(view, position)
    if end is not None:
        return 0, end
    content_size, start, trailer_bytes = _zstd_blocks_start(view, position)
    bound, end = _zstd_blocks_bound(view, start)
    return bound if content_size is None else content_size, end + trailer_bytes


def _zstd_skippable_end(view: memoryview, position: int) -> int | None:
    """Return where the frame ends if it is one to be passed over."""
    if _little_endian(view, position, 4) & ~0xF != _ZSTD_SKIPPABLE_MAGIC:
        return None
    return position + 8 + _little_endian(view, position + 4, 4)


def _zstd_blocks_start(view: memoryview, position: int) -> tuple[int | None, int, int]:
    """Return the content size if the frame tells, where its blocks start, and what follows them."""
    magic = _little_endian(view, position, 4)
    position += 4
    if magic != _ZSTD_MAGIC:
        raise CorruptBatch(f"zstd frame starts with {magic:#010x}")
    descriptor = view[position]  # an IndexError beyond the end, too
    is_single_segment = descriptor & 0x20
    position += 1 if is_single_segment else 2  # the window descriptor follows, or not
    position += _ZSTD_DICTIONARY_WIDTHS[descriptor & 3]
    width = _ZSTD_SIZE_WIDTHS[descriptor >> 6] or (1 if is_single_segment else 0)
    content_size = _little_endian(view, position, width) + (256 if width == 2 else 0)
    return content_size if width else None, position + width, 4 if descriptor & 4 else 0


def _zstd_blocks_bound(view: memoryview, position: int) -> tuple[int, int]:
    """Return the most that the blocks from `position` on can hold, and where the last one ends."""
    bound = 0
    is_last = False
    while not is_last:
        block_bound, position, is_last = _zstd_block(view, position)
        bound += block_bound
    return bound, position


def _zstd_block(view: memoryview, position: int) -> tuple[int, int, bool]:
    """Return the most that a block holds, where it ends, and whether it is the frame's last."""
    header = _little_endian(view, position, 3)
    is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
    if kind > _ZSTD_COMPRESSED:
        raise CorruptBatch("zstd block has a reserved type")
    end = position + 3 + (1 if kind == _ZSTD_RLE else size)
    return _ZSTD_BLOCK_MAX_BYTES if kind == _ZSTD_COMPRESSED else size, end, is_last


def _little_endian(view: memoryview, position: int, width: int) -> int:
    """Return an unsigned number; raise `IndexError` where the bytes end before it does."""
    if position + width > len(view):
        raise IndexError(position)
    return int.from_bytes(view[position : position + width], "little")


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: compress_frame,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: Final[dict[Codec, Callable[[Buffer, int], Buffer]]] = {
    Codec.NONE: _decompress_none,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: decompress_frame,
    Codec.ZSTD: _decompress_zstd,
}
assert _COMPRESSORS.keys() == _DECOMPRESSORS.keys() == set(Codec)
