"""LZ4 frames: the form that Kafka writes, the forms that it reads, and those that it refuses."""

import struct
from contextlib import suppress

import lz4.block
import lz4.frame
import pytest

from engine.errors import CorruptBatch, TooLarge
from engine.records.codecs.lz4 import compress, pieces
from engine.records.compression import decompress
from engine.records.header import Codec

LIMIT = 10_000_000
TEXT = b"a line that repeats itself, " * 10_000  # 280,000 bytes, five blocks
RANDOM = bytes((index * 7919 >> 3) & 0xFF ^ (index * 104_729 >> 11) & 0xFF for index in range(300))


def frame(
    *blocks: bytes,
    flags: int = 0x60,
    descriptor: int = 0x40,
    extra: bytes = b"",
    end: bytes = bytes(4),
) -> bytes:
    """Return a frame around blocks that carry their size and all that belongs to them."""
    head = b"\x04\x22\x4d\x18" + bytes([flags, descriptor]) + extra
    return head + hash_of(head) + b"".join(blocks) + end


def hash_of(head: bytes) -> bytes:
    """Return the second byte of the descriptor's xxHash32: the one that the library accepts."""
    for number in range(256):
        with suppress(RuntimeError):
            lz4.frame.get_frame_info(head + bytes([number]))
            return bytes([number])
    return b"?"  # it accepts no such descriptor


def stored(content: bytes, trailer: bytes = b"") -> bytes:
    return struct.pack("<I", len(content) | 0x8000_0000) + content + trailer


def packed(content: bytes, trailer: bytes = b"") -> bytes:
    block: bytes = lz4.block.compress(content, store_size=False)
    return struct.pack("<I", len(block)) + block + trailer


def test_what_is_written_is_kafkas_frame() -> None:
    """Independent blocks of 64 KiB without sizes or checksums, then the end mark."""
    written = compress(TEXT, None)
    assert written[:7].hex() == "04224d18604082"
    assert written[-4:] == bytes(4)
    position, blocks = 7, 0
    while size := struct.unpack_from("<I", written, position)[0]:
        position += 4 + size
        blocks += 1
    assert blocks == -(-len(TEXT) // 65_536)
    assert position == len(written) - 4


def test_a_block_that_does_not_shrink_is_stored() -> None:
    """As Kafka does, with the top bit of its size set."""
    assert compress(RANDOM, None) == frame(stored(RANDOM))


def test_nothing_is_an_empty_frame() -> None:
    """No bytes make a descriptor and an end mark, and come back as none."""
    assert compress(b"", None) == frame()
    assert len(decompress(Codec.LZ4, frame(), LIMIT)) == 0


@pytest.mark.parametrize("level", [None, 1, 9, 12, 17])
@pytest.mark.parametrize("data", [b"x", RANDOM, TEXT], ids=["one", "random", "text"])
def test_every_level_reads_back(data: bytes, level: int | None) -> None:
    """Kafka's levels 1 to 17 are accepted, and what they write is the same data."""
    assert decompress(Codec.LZ4, compress(data, level), LIMIT) == data


def test_the_default_level_is_the_fast_compressor() -> None:
    """Level 9 and no level write the same, any other level compresses harder."""
    assert compress(TEXT, 9) == compress(TEXT, None)
    varied = " ".join(str(number * number) for number in range(5_000)).encode()
    thorough = compress(varied, 17)
    assert len(thorough) < len(compress(varied, None))
    assert thorough[:7] == compress(varied, None)[:7]


@pytest.mark.parametrize(
    "read",
    [
        frame(packed(TEXT[:1000])),
        frame(stored(TEXT[:500]), packed(TEXT[500:1000])),
        frame(packed(TEXT[:1000]), flags=0x68, extra=struct.pack("<Q", 1000)),
        frame(packed(TEXT[:1000]), flags=0x64, end=bytes(4) + b"abcd"),
        frame(packed(TEXT[:1000]), descriptor=0x70),
        lz4.frame.compress(TEXT[:1000], block_linked=False, block_checksum=True),
        lz4.frame.compress(TEXT[:1000], block_linked=False, content_checksum=True),
    ],
    ids=[
        "plain",
        "mixed",
        "content-size",
        "wrong-content-checksum",
        "4-MiB-blocks",
        "block-checksum",
        "right-content-checksum",
    ],
)
def test_every_optional_part_of_a_frame_is_understood(read: bytes) -> None:
    """Optional parts of other writers' frames do not prevent reading."""
    assert decompress(Codec.LZ4, memoryview(read), LIMIT) == TEXT[:1000]


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (b"", "magic"),
        (frame()[:5], "magic"),
        (frame()[:6], "inside its descriptor"),
        (b"\x02\x21\x4c\x18" + frame()[4:], "magic"),  # the legacy frame
        (frame(flags=0x40), "independent"),
        (frame(flags=0xA0), "version 1"),
        (frame(flags=0x61), "lz4 flags 0x61"),
        (frame(descriptor=0xC0), "undefined"),
        (frame(descriptor=0x41), "undefined"),
        (frame(descriptor=0x30), "undefined"),
        (frame(flags=0x68, extra=bytes(8))[:14], "inside its descriptor"),
        (frame()[:6] + b"\x00" + frame()[7:], "wrong hash"),
        (frame(end=b""), "before its end mark"),
        (frame(packed(TEXT[:1000]), end=bytes(3)), "before its end mark"),
        (frame(stored(bytes(65_537))), "damaged.*maxBlockSize"),
        (frame(struct.pack("<I", 100) + b"short")[:-4], "before its end mark"),
        (frame(packed(TEXT[:1000], b"abcd"), flags=0x70), "damaged.*[cC]hecksum"),
        (frame(struct.pack("<I", 5) + b"\xff\xff\xff\xff\xff"), "damaged"),
        (frame(packed(bytes(65_537))), "damaged"),  # more than a block may hold
        (frame() + b"x", "ends at byte 11 of 12"),
        (frame(flags=0x64), "ends at byte 15 of 11"),
    ],
)
def test_what_kafka_could_not_read_is_corrupt(read: bytes, message: str) -> None:
    """Each rule of Kafka's reader has a frame that only breaks that rule."""
    with pytest.raises(CorruptBatch, match=message):
        decompress(Codec.LZ4, read, LIMIT)


def test_reading_stops_with_the_piece_that_passes_the_limit() -> None:
    """The rest of a frame is not decompressed, so later faults are not reported."""
    bomb = frame(*[stored(bytes(65_536))] * 3, b"nonsense")
    with pytest.raises(TooLarge):
        decompress(Codec.LZ4, bomb, 100_000)
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, bomb, LIMIT)


def test_a_block_of_4_mib_comes_in_pieces() -> None:
    """Whatever a few bytes expand to, the pieces are small and the blocks independent."""
    frames = lz4.frame.compress(
        bytes(9 << 20), block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False
    )
    sizes = [len(piece) for piece in pieces(frames, LIMIT)]
    assert sum(sizes) == 9 << 20
    assert max(sizes) <= 1 << 18
