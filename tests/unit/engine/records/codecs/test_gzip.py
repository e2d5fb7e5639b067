"""gzip: exactly one member, of any level."""

import gzip
import zlib

import pytest

from engine.errors import CorruptBatch
from engine.records.compression import compress, decompress
from engine.records.header import Codec

LIMIT = 1_000_000
TEXT = b"the quick brown fox " * 5_000


def test_gzip_is_one_member_of_the_standard_format() -> None:
    """The standard library reads the written data, and a second member is refused."""
    written = compress(Codec.GZIP, TEXT)
    assert gzip.decompress(written) == TEXT
    with pytest.raises(CorruptBatch, match="exactly one member"):
        decompress(Codec.GZIP, written * 2, LIMIT)


def test_gzip_damage_is_found_by_its_own_checksum() -> None:
    """A wrong check sum inside the member is damage."""
    written = bytearray(compress(Codec.GZIP, b"abc"))
    written[-5] ^= 1
    with pytest.raises(CorruptBatch, match="gzip payload is damaged"):
        decompress(Codec.GZIP, written, LIMIT)


def test_gzip_levels_differ() -> None:
    """A level is passed on: the best is smaller than the fastest."""
    text = TEXT + bytes(range(256)) * 300
    assert len(compress(Codec.GZIP, text, 9)) < len(compress(Codec.GZIP, text, 1))
    assert compress(Codec.GZIP, text, -1) == zlib.compress(text, -1, 31)
