"""Snappy: the Java client's stream of blocks, raw snappy, and damage."""

import struct

import cramjam
import pytest

from engine.errors import CorruptBatch
from engine.records.codecs import snappy
from engine.records.compression import compress, decompress
from engine.records.header import Codec

LIMIT = 1_000_000
TEXT = b"the quick brown fox " * 5_000


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    """Header, then length and raw block for each 32 KiB of input."""
    written = compress(Codec.SNAPPY, bytes(70_000))
    assert written[:16].hex() == "82534e41505059000000000100000001"
    position, sizes = 16, []
    while position < len(written):
        (size,) = struct.unpack_from(">i", written, position)
        block = written[position + 4 : position + 4 + size]
        sizes.append(cramjam.snappy.decompress_raw_len(block))
        position += 4 + size
    assert sizes == [32_768, 32_768, 4_464]


def test_snappy_without_the_xerial_magic_is_one_raw_block() -> None:
    """Clients other than the Java one may write raw snappy, of any size."""
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, LIMIT) == TEXT


@pytest.mark.parametrize("size", [-1, 0, 6, 2**31 - 1])
def test_a_snappy_block_that_does_not_fit_is_corrupt(size: int) -> None:
    """Block lengths must be within the payload."""
    header = compress(Codec.SNAPPY, b"")
    with pytest.raises(CorruptBatch, match="does not fit"):
        decompress(Codec.SNAPPY, header + struct.pack(">i", size) + b"short", LIMIT)


def test_a_snappy_block_that_lies_about_its_size_is_corrupt() -> None:
    """A block whose content is not as long as it claims is damage."""
    raw = bytearray(cramjam.snappy.compress_raw(b"x" * 100))
    raw[0] -= 1
    with pytest.raises(CorruptBatch, match="snappy payload is damaged"):
        decompress(Codec.SNAPPY, raw, LIMIT)


def test_the_bound_counts_blocks_only_up_to_the_limit() -> None:
    """A stream of many blocks is not read to its end, and a damaged one has no bound."""
    blocks = compress(Codec.SNAPPY, bytes(100_000))
    assert snappy.bound(blocks, 1_000_000) == 100_000
    assert snappy.bound(blocks, 40_000) == 65_536
    with pytest.raises(CorruptBatch, match="damaged"):
        snappy.bound(b"\xff" * 8, LIMIT)
