"""The codecs: framings, limits that hold before memory is taken, and damage."""

import tracemalloc

import pytest

from engine.errors import CorruptBatch, TooLarge
from engine.records.compression import compress, decompress
from engine.records.header import Codec

LIMIT = 1_000_000
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
SAMPLES = {
    "nothing": b"",
    "one byte": b"x",
    "text": b"the quick brown fox " * 5_000,
    "bytes": bytes(range(256)) * 300,
}
MEBIBYTE = 1 << 20


def bomb(codec: Codec) -> bytes:
    """Return 64 MiB of zeros, compressed."""
    return compress(codec, bytes(64 * MEBIBYTE))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_compressed_comes_back(codec: Codec, name: str) -> None:
    """Every codec is the inverse of itself, from any kind of buffer, up to the limit exactly."""
    data = SAMPLES[name]
    compressed = compress(codec, memoryview(bytearray(data)))
    assert decompress(codec, memoryview(compressed), len(data)) == data


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_over_the_limit_is_too_large(codec: Codec) -> None:
    """The refusal names the limit and its size."""
    with pytest.raises(TooLarge) as refusal:
        decompress(codec, compress(codec, bytes(1_000)), 999)
    facts = refusal.value.facts()
    assert facts["limit"] == "max_decompressed_batch_bytes"
    assert facts["limit_bytes"] == 999
    actual_bytes = facts["actual_bytes"]
    assert isinstance(actual_bytes, int)
    assert actual_bytes > 999


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: Codec) -> None:
    """64 MiB in a few kilobytes are refused after at most a limit's worth of memory."""
    compressed = bomb(codec)
    assert len(compressed) < 4 * MEBIBYTE
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(codec, compressed, MEBIBYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MEBIBYTE


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_payload_cut_anywhere_is_corrupt(codec: Codec) -> None:
    """No prefix passes for the whole; an end between two of snappy's blocks cannot be seen."""
    compressed = compress(codec, bytes(range(256)) * 4)
    for size in range(len(compressed)):
        if codec is Codec.SNAPPY and size == 16:
            assert len(decompress(codec, compressed[:size], LIMIT)) == 0
            continue
        with pytest.raises(CorruptBatch):
            decompress(codec, compressed[:size], LIMIT)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_after_the_payload_are_corrupt(codec: Codec) -> None:
    """A payload is all of its bytes."""
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, bytes(100)) + b"more", LIMIT)
