"""Compresses and decompresses record batches in Kafka's framings, within a limit.

The compressed size does not bound the content: 12 KB can decompress to 400 MB. So nothing here
allocates more than the caller's limit, plus one piece or block of the codec. `decompress` returns
the whole content, `decompressed_pieces` yields pieces of about a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from engine.errors import CorruptBatch, TooLarge
from engine.records.budget import DecodeBudget
from engine.records.codecs import gzip, lz4, snappy, zstd
from engine.records.codecs.bounds import too_large
from engine.records.header import Codec
from engine.types import Buffer

DEFAULT_DECOMPRESSED_LIMIT_BYTES: Final = 64 * 1024 * 1024


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return the bytes in the codec's framing; a `level` of None is Kafka's default."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: Codec,
    data: Buffer,
    limit_bytes: int,
    *,
    checks_lz4_hash: bool = True,
    budget: DecodeBudget | None = None,
) -> memoryview:
    """Return the decompressed content, at most `limit_bytes`.

    Raises `CorruptBatch` if the data is damaged, incomplete or has trailing bytes, `TooLarge`
    beyond the limit, `DecodeBudgetSpent` beyond the budget. The hash of an LZ4 frame is only
    ignored for messages of magic 0.
    """
    bound = limit_bytes if budget is None else min(limit_bytes, budget.left_bytes)
    pieces_of = _PIECES[codec]
    if codec is Codec.LZ4 and not checks_lz4_hash:
        pieces_of = partial(lz4.pieces, checks_hash=False)
    pieces: list[Buffer] = []
    size_bytes = 0
    try:
        for piece in pieces_of(data, bound):
            size_bytes += len(piece)
            if size_bytes > bound:
                raise too_large(bound, size_bytes)
            if pieces and budget is not None:
                budget.check()
            pieces.append(piece)
    except TooLarge:
        if budget is not None and bound < limit_bytes:
            raise budget.bytes_spent() from None
        raise
    content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if budget is not None:
        budget.take(size_bytes)
    return memoryview(content)


def decompressed_pieces(
    codec: Codec, data: Buffer, limit_bytes: int, budget: DecodeBudget | None = None
) -> Iterator[Buffer]:
    """Yield the decompressed content in pieces, decoding on demand.

    Each piece is counted in the budget, without an error when it is spent. Otherwise raises as
    `decompress`, at the piece with the fault.
    """
    size_bytes = 0
    for piece in _PIECES[codec](data, limit_bytes):
        size_bytes += len(piece)
        if size_bytes > limit_bytes:
            raise too_large(limit_bytes, size_bytes)
        if budget is not None:
            budget.spend(len(piece))
        yield piece


def content_bound(codec: Codec, data: Buffer, limit_bytes: int) -> int:
    """Return an upper bound of the decompressed size, at most the limit, without decoding."""
    try:
        return min(limit_bytes, _BOUNDS[codec](data, limit_bytes))
    except CorruptBatch:
        return limit_bytes


def _stored(data: Buffer, limit_bytes: int) -> Iterator[Buffer]:  # noqa: ARG001 - one signature
    yield data


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.GZIP: gzip.compress,
    Codec.SNAPPY: snappy.compress,
    Codec.LZ4: lz4.compress,
    Codec.ZSTD: zstd.compress,
}
_PIECES: Final[dict[Codec, Callable[[Buffer, int], Iterator[Buffer]]]] = {
    Codec.NONE: _stored,
    Codec.GZIP: gzip.pieces,
    Codec.SNAPPY: snappy.pieces,
    Codec.LZ4: lz4.pieces,
    Codec.ZSTD: zstd.pieces,
}
_BOUNDS: Final[dict[Codec, Callable[[Buffer, int], int]]] = {
    Codec.GZIP: gzip.bound,
    Codec.SNAPPY: snappy.bound,
    Codec.LZ4: lz4.bound,
    Codec.ZSTD: zstd.bound,
}
assert _BOUNDS.keys() == _COMPRESSORS.keys()
assert _PIECES.keys() == _COMPRESSORS.keys() | {Codec.NONE} == set(Codec)
