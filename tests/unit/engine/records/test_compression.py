"""The codecs: framings, limits that hold before memory is taken, and damage."""

import gzip
import struct
import tracemalloc
import zlib

import cramjam
import pytest

from engine.errors import CorruptBatch, TooLarge
from engine.records.codecs.zstd import zstd
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


def test_gzip_is_one_member_of_the_standard_format() -> None:
    """The standard library reads what is written, and a second member is refused."""
    written = compress(Codec.GZIP, SAMPLES["text"])
    assert gzip.decompress(written) == SAMPLES["text"]
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
    text = SAMPLES["text"] + SAMPLES["bytes"]
    assert len(compress(Codec.GZIP, text, 9)) < len(compress(Codec.GZIP, text, 1))
    assert compress(Codec.GZIP, text, -1) == zlib.compress(text, -1, 31)


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
    raw = bytes(cramjam.snappy.compress_raw(SAMPLES["text"]))
    assert decompress(Codec.SNAPPY, raw, LIMIT) == SAMPLES["text"]


@pytest.mark.parametrize("size", [-1, 0, 6, 2**31 - 1])
def test_a_snappy_block_that_does_not_fit_is_corrupt(size: int) -> None:
    """Block lengths are believed only within the payload."""
    header = compress(Codec.SNAPPY, b"")
    with pytest.raises(CorruptBatch, match="does not fit"):
        decompress(Codec.SNAPPY, header + struct.pack(">i", size) + b"short", LIMIT)


def test_a_snappy_block_that_lies_about_its_size_is_corrupt() -> None:
    """A block whose content is not as long as it claims is damage."""
    raw = bytearray(cramjam.snappy.compress_raw(b"x" * 100))
    raw[0] -= 1
    with pytest.raises(CorruptBatch, match="snappy payload is damaged"):
        decompress(Codec.SNAPPY, raw, LIMIT)


def zstd_frame(descriptor: int, fields: bytes, *blocks: bytes) -> bytes:
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + fields + b"".join(blocks)


def zstd_block(kind: int, size: int, content: bytes, *, is_last: bool = True) -> bytes:
    return (size << 3 | kind << 1 | is_last).to_bytes(3, "little") + content


@pytest.mark.parametrize(
    ("frame", "content"),
    [
        (zstd_frame(0x00, b"\x00", zstd_block(0, 3, b"abc")), b"abc"),
        (zstd_frame(0x00, b"\x00", zstd_block(1, 900, b"z")), b"z" * 900),
        (zstd_frame(0x20, b"\x03", zstd_block(0, 3, b"abc")), b"abc"),
        (zstd_frame(0x60, b"\x2c\x00", zstd_block(1, 300, b"q")), b"q" * 300),
        (zstd_frame(0xA0, b"\x03\x00\x00\x00", zstd_block(0, 3, b"abc")), b"abc"),
        (zstd_frame(0xC0, b"\x00\x03" + bytes(7), zstd_block(0, 3, b"abc")), b"abc"),
        (
            zstd_frame(0, b"\0", zstd_block(0, 1, b"a", is_last=False), zstd_block(0, 1, b"b")),
            b"ab",
        ),
        (
            b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
            + zstd_frame(0x20, b"\0", zstd_block(0, 0, b"")),
            b"",
        ),
    ],
    ids=["raw", "rle", "size-1", "size-2", "size-4", "size-8", "two-blocks", "skippable"],
)
def test_every_form_of_a_zstd_frame_is_understood(frame: bytes, content: bytes) -> None:
    """Frame headers of all shapes, and several frames behind one another."""
    assert decompress(Codec.ZSTD, frame, LIMIT) == content
    assert decompress(Codec.ZSTD, frame + frame, LIMIT) == content * 2


def test_a_zstd_frame_with_checksum_is_verified() -> None:
    """A content checksum is part of the frame, and a wrong one is damage."""
    checked: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
    streamed = zstd.compress(SAMPLES["text"], options=checked)
    assert decompress(Codec.ZSTD, streamed, LIMIT) == SAMPLES["text"]
    wrong = zstd_frame(0x24, b"\x03", zstd_block(0, 3, b"abc"), bytes(4))
    with pytest.raises(CorruptBatch, match="zstd payload is damaged"):
        decompress(Codec.ZSTD, wrong, LIMIT)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"nonsense", "damaged"),
        (zstd_frame(0x00, b"\x00", zstd_block(3, 3, b"abc")), "damaged"),
        (zstd_frame(0x00, b"\x00", zstd_block(0, 9, b"abc")), "damaged"),
        (zstd_frame(0x00, b"\x00", zstd_block(0, 3, b"abc", is_last=False)), "damaged"),
        (zstd_frame(0x20, b"\x05", zstd_block(0, 3, b"abc")), "damaged"),
        (zstd_frame(0x00, b"\x00", zstd_block(2, 3, b"\xff\xff\xff")), "damaged"),
        (b"\x50\x2a\x4d\x18\x09\x00\x00\x00skip", "damaged"),
    ],
)
def test_a_zstd_frame_that_is_wrong_is_corrupt(frame: bytes, message: str) -> None:
    """Unknown frames, reserved blocks, lying sizes and bytes that end early."""
    with pytest.raises(CorruptBatch, match=message):
        decompress(Codec.ZSTD, frame, LIMIT)


@pytest.mark.parametrize("level", [-7, 1, 3, 19])
def test_zstd_takes_kafkas_levels(level: int) -> None:
    """Negative levels are fast ones; all of them read back."""
    written = compress(Codec.ZSTD, SAMPLES["text"], level)
    assert decompress(Codec.ZSTD, written, LIMIT) == SAMPLES["text"]
