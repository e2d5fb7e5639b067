"""What of stored batches the event loop decodes, and how much memory showing them takes."""

import random
from dataclasses import replace

import pytest

from app.codecs.records_out import render_records
from app.codecs.stored import INLINE, View, render_bytes
from engine.errors import StoredDataCorrupt, WouldBlock
from engine.records.builder import build_batch
from engine.records.header import CRC_POSITION, Codec
from engine.types import Buffer
from tests.support.legacy import legacy_wrapper

ALL = View(start=0)
MEBIBYTE = 1 << 20


def at(batch: bytearray, base_offset: int) -> bytearray:
    """The batch with another base offset, which is under no checksum."""
    return bytearray(base_offset.to_bytes(8, "big") + batch[8:])


COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_event_loop_decompresses_only_what_is_small(codec: Codec) -> None:
    """A small batch may hold a bomb: beyond a bound of bytes and records it is for a worker."""
    inline = View(start=0, nonblocking=True)
    noise = random.Random(7).randbytes(INLINE.stored_bytes)
    bombs = {
        "content": [(1, None, bytes(INLINE.content_bytes), ())],
        "records": [(1, None, b"x", ())] * (INLINE.records + 1),
        "stored": [(1, None, noise, ())],
    }
    for name, records in bombs.items():
        with pytest.raises(WouldBlock):
            render_records(build_batch(records, codec=codec), inline)
        assert render_records(build_batch(records, codec=codec), ALL).count == len(records), name
    small = [(1, b"key", b'"%b"' % (b"x" * 50), ()) for _ in range(100)]
    batch = build_batch(small, codec=codec)
    assert render_records(batch, inline) == render_records(batch, ALL)
    both = batch + at(batch, 100)
    assert render_records(both, inline).count == 200
    with pytest.raises(WouldBlock):
        render_records(both + at(batch, 200), inline)  # together they are more than 256 records


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_formats_are_not_decompressed_on_the_event_loop(codec: Codec) -> None:
    """Their headers do not tell how many records they hold."""
    with pytest.raises(WouldBlock):
        render_records(legacy_wrapper(0, [b"1"], codec=codec), View(start=0, nonblocking=True))


def _memory(*reads: Buffer, copies: int = 1) -> int:
    return render_bytes(reads, max_answer_bytes=1_000_000, limit_bytes=64 * MEBIBYTE, copies=copies)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_memory_of_a_bomb_is_known_before_it_is_decoded(codec: Codec) -> None:
    """What the headers tell is at least what is there, and no more than a batch may hold."""
    bomb = build_batch([(1, None, bytes(8 * MEBIBYTE), ())], codec=codec)
    assert 1_000_000 + 3 * 8 * MEBIBYTE < _memory(bomb) <= 1_000_000 + 3 * 64 * MEBIBYTE
    small = build_batch([(1, None, b"x" * 100, ())], codec=codec)
    assert _memory(small) < MEBIBYTE
    assert _memory(small, small, copies=2) - _memory(small, small) < 2 * _memory(small)


def test_the_memory_of_what_cannot_be_looked_into_is_that_of_the_largest_batch() -> None:
    """Damage, old formats, and batches far after others: their headers are not read."""
    most = 1_000_000 + 3 * 64 * MEBIBYTE
    small = build_batch([(1, None, b"x" * 100, ())], codec=Codec.ZSTD)
    damaged = bytearray(small)
    damaged[61] ^= 0xFF
    assert _memory(damaged) == most
    assert _memory(legacy_wrapper(0, [b"1"])) == most
    before = build_batch([(1, None, bytes(MEBIBYTE), ())])
    assert _memory(before + small) == most
    assert _memory(before) < 1_000_000 + 4 * MEBIBYTE


def test_a_checksum_that_the_read_has_not_verified_is_verified_here() -> None:
    """A log elsewhere sends what it has; one that was verified is not verified again."""
    batch = build_batch([(1, None, b"1", ())])
    batch[CRC_POSITION] ^= 0xFF
    with pytest.raises(StoredDataCorrupt):
        render_records(batch, ALL)
    assert render_records(batch, replace(ALL, is_verified=True)).count == 1
