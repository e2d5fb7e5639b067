"""Where a zstd frame ends, told while its bytes are still coming."""

import cramjam
import pytest

from engine.errors import CorruptBatch
from engine.records.compression import ZstdFrame

SKIPPABLE = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
FRAMES = {
    "text": bytes(cramjam.zstd.compress(b"some text " * 100)),
    "zeros": bytes(cramjam.zstd.compress(bytes(1_000_000))),
    "several blocks": bytes(cramjam.zstd.compress(bytes(range(256)) * 2_000)),
    "nothing": bytes(cramjam.zstd.compress(b"")),
    "to be passed over": SKIPPABLE,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_the_end_is_known_with_the_last_byte_and_not_before(frame: bytes) -> None:
    """Byte by byte or all at once with others behind it: a frame ends where it ends."""
    growing = ZstdFrame()
    assert [growing.end_in(frame[:size]) for size in range(len(frame))] == [None] * len(frame)
    assert growing.end_in(frame) == len(frame)
    assert ZstdFrame().end_in(frame + SKIPPABLE) == len(frame)


@pytest.mark.parametrize("data", [b"not a frame", b"\x28\xb5\x2f\xfd\x00\x00\x07\x00\x00"])
def test_what_is_no_frame_is_corrupt(data: bytes) -> None:
    """Other bytes, and a block of a type that does not exist, are refused as soon as they come."""
    with pytest.raises(CorruptBatch):
        ZstdFrame().end_in(data)
