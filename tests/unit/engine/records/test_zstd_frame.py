"""Zstd frames cut into pieces of bounded content while their bytes are still coming."""

import cramjam
import pytest
import zstandard

from engine.errors import CorruptBatch
from engine.records.zstd_frame import BLOCK_MAX_BYTES, FramePieces

CONTENT_BYTES = 256 * 1024
SKIPPABLE = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
CONTENTS = {
    "text": b"some text " * 100,
    "zeros": bytes(3_000_000),
    "several blocks": bytes(range(256)) * 4_000,
    "nothing": b"",
}
FRAMES = {
    **{name: bytes(cramjam.zstd.compress(content)) for name, content in CONTENTS.items()},
    "with a checksum": zstandard.ZstdCompressor(write_checksum=True).compress(CONTENTS["zeros"]),
    "to be passed over": SKIPPABLE,
}


def pieces_of(frame: bytes, *, fed_bytes: int) -> list[bytes]:
    """The pieces of one frame that comes so many bytes at a time."""
    walk, data, position, pieces = FramePieces(), b"", 0, []
    for start in range(0, len(frame), fed_bytes):
        assert not walk.is_over
        data += frame[start : start + fed_bytes]
        while (end := walk.next_in(data, position, CONTENT_BYTES)) > position:
            pieces.append(data[position:end])
            position = end
    assert walk.is_over
    return pieces


@pytest.mark.parametrize("fed_bytes", [1, 7, 10_000_000])
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_a_frame_is_over_with_its_last_byte_and_not_before(frame: bytes, fed_bytes: int) -> None:
    """Byte by byte or all at once: the pieces are the frame, whatever it comes in."""
    assert b"".join(pieces_of(frame, fed_bytes=fed_bytes)) == frame


@pytest.mark.parametrize("name", CONTENTS)
def test_a_piece_holds_no_more_than_was_asked_for(name: str) -> None:
    """Whatever a few bytes expand to, a decoder that is given them piece by piece is in bounds."""
    decoder = zstandard.ZstdDecompressor().decompressobj()
    contents = [
        decoder.decompress(piece) for piece in pieces_of(FRAMES[name], fed_bytes=10_000_000)
    ]
    assert b"".join(contents) == CONTENTS[name]
    assert max(map(len, contents)) <= CONTENT_BYTES
    assert name != "zeros" or len(contents) >= len(CONTENTS[name]) / CONTENT_BYTES


def test_what_follows_a_frame_is_left_for_the_next() -> None:
    """A frame ends where it ends, and one that begins elsewhere in the bytes is found there."""
    walk = FramePieces()
    data = SKIPPABLE + FRAMES["text"] + SKIPPABLE
    assert (walk.next_in(data, 0, CONTENT_BYTES), walk.is_skippable) == (len(SKIPPABLE), True)
    walk = FramePieces()
    end = walk.next_in(data, len(SKIPPABLE), CONTENT_BYTES)
    assert (end, walk.is_over) == (len(data) - len(SKIPPABLE), True)


@pytest.mark.parametrize(
    ("head", "window_bytes"),
    [
        (b"\x00\x00", 1 << 10),
        (b"\x00\x8f", (1 << 27) * 15 // 8),
        (b"\x20\x07", 7),
        (b"\x60\x00\x01", 512),
        (b"\xa0\x00\x00\x00\x01", 1 << 24),
        (b"\xe0" + b"\xff" * 8, (1 << 64) - 1),
    ],
)  # fmt: skip
def test_the_window_is_known_before_anything_is_decoded(head: bytes, window_bytes: int) -> None:
    """As a descriptor, or as the size of a content that is all one segment."""
    walk = FramePieces()
    frame = b"\x28\xb5\x2f\xfd" + head
    assert (walk.next_in(frame[:-1], 0, 1), walk.has_begun) == (0, False)
    assert walk.next_in(frame, 0, 1) == len(frame)
    assert walk.window_bytes == window_bytes


def test_a_large_block_is_a_piece_of_its_own() -> None:
    """However little is asked for, a block comes whole: the next one after it."""
    raw = b"\x00\x00\x02" + bytes(1 << 14)  # 16 KiB as they are
    walk, frame = FramePieces(), b"\x28\xb5\x2f\xfd\x00\x50" + raw + raw
    first = walk.next_in(frame, 0, 1)
    assert (first, walk.next_in(frame, first, 1)) == (6 + len(raw), len(frame))


@pytest.mark.parametrize(
    "data",
    [
        b"not a frame",
        b"\x28\xb5\x2f\xfd\x00\x00\x07\x00\x00",
        b"\x28\xb5\x2f\xfd\x00\x00" + (BLOCK_MAX_BYTES + 1 << 3).to_bytes(3, "little"),
    ],
    ids=["other bytes", "no such block", "no block is so large"],
)
def test_what_is_no_frame_is_corrupt(data: bytes) -> None:
    """What cannot become a frame any more is refused as soon as it comes."""
    with pytest.raises(CorruptBatch):
        FramePieces().next_in(data, 0, CONTENT_BYTES)
