"""zstd: frames of all shapes, several of them, and damage."""

import pytest

from engine.errors import CorruptBatch
from engine.records.codecs.zstd import bound, zstd
from engine.records.compression import compress, decompress
from engine.records.header import Codec

LIMIT = 1_000_000
TEXT = b"the quick brown fox " * 5_000


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
    """Frame headers of all shapes, and several frames in sequence."""
    assert decompress(Codec.ZSTD, frame, LIMIT) == content
    assert decompress(Codec.ZSTD, frame + frame, LIMIT) == content * 2


def test_a_zstd_frame_with_checksum_is_verified() -> None:
    """A content checksum is part of the frame, and a wrong one is damage."""
    checked: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
    streamed = zstd.compress(TEXT, options=checked)
    assert decompress(Codec.ZSTD, streamed, LIMIT) == TEXT
    wrong = zstd_frame(0x24, b"\x03", zstd_block(0, 3, b"abc"), bytes(4))
    with pytest.raises(CorruptBatch, match="zstd payload is damaged"):
        decompress(Codec.ZSTD, wrong, LIMIT)


@pytest.mark.parametrize(
    "frame",
    [
        b"nonsense",
        zstd_frame(0x00, b"\x00", zstd_block(3, 3, b"abc")),
        zstd_frame(0x00, b"\x00", zstd_block(0, 9, b"abc")),
        zstd_frame(0x00, b"\x00", zstd_block(0, 3, b"abc", is_last=False)),
        zstd_frame(0x20, b"\x05", zstd_block(0, 3, b"abc")),
        zstd_frame(0x00, b"\x00", zstd_block(2, 3, b"\xff\xff\xff")),
        b"\x50\x2a\x4d\x18\x09\x00\x00\x00skip",
    ],
)
def test_a_zstd_frame_that_is_wrong_is_corrupt(frame: bytes) -> None:
    """Unknown frames, reserved blocks, lying sizes and bytes that end early."""
    with pytest.raises(CorruptBatch, match="zstd payload is damaged"):
        decompress(Codec.ZSTD, frame, LIMIT)


@pytest.mark.parametrize("level", [-7, 1, 3, 19])
def test_zstd_takes_kafkas_levels(level: int) -> None:
    """Negative levels are fast ones; all of them read back."""
    written = compress(Codec.ZSTD, TEXT, level)
    assert decompress(Codec.ZSTD, written, LIMIT) == TEXT


def test_the_declared_sizes_of_all_frames_are_added_up_to_the_limit() -> None:
    """A limit of memory needs the sum, and not more of it than decides."""
    frame = compress(Codec.ZSTD, bytes(100))
    assert bound(frame * 3, 1_000) == 300
    assert bound(frame * 3, 200) == 200
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
    assert bound(skippable + frame, 1_000) == 100
