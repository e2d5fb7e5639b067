"""The bytes of a producer snapshot: Kafka's, both ways, and what counts as damage."""

import struct

import pytest

from engine.errors import CorruptSnapshot
from engine.records.checksum import crc32c
from engine.state.producer_entry import BatchMetadata, ProducerEntry
from engine.state.producer_snapshots import (
    ENTRY,
    HEADER,
    decode_snapshot,
    encode_snapshot,
    in_table_order,
)
from tests.support.kafka import kafka

LOADED_MS = 1_795_219_400_000

EMPTY = bytes.fromhex("00 01 48 67 4b c7 00 00 00 00")

THREE_PRODUCERS = bytes.fromhex(
    """
    00 01 e6 47 e6 ca 00 00 00 03
    00 00 00 00 00 00 03 e8 00 00 00 00 00 04 00 00 00 00 00 00 00 04 00 00 00 04
    00 00 01 8b cf e5 68 00 ff ff ff ff ff ff ff ff ff ff ff ff
    00 00 00 00 00 00 07 d0 00 03 ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 00
    00 00 01 8b cf e5 69 f4 00 00 00 07 ff ff ff ff ff ff ff ff
    00 00 00 00 00 00 0b b8 00 01 00 00 00 02 00 00 00 00 00 00 00 0c 00 00 00 02
    00 00 01 8b cf e5 6b e8 00 00 00 02 00 00 00 00 00 00 00 0a
    """
)

OPEN_TRANSACTION = bytes.fromhex(
    """
    00 01 09 b7 6d c9 00 00 00 01
    00 00 00 00 00 00 0f a0 00 01 00 00 00 0c 00 00 00 00 00 00 00 66 00 00 00 02
    00 00 01 8b cf e5 68 96 ff ff ff ff 00 00 00 00 00 00 00 64
    """
)

EXAMPLES = [
    (EMPTY, ()),
    (
        THREE_PRODUCERS,
        (
            ProducerEntry(
                1000,
                producer_epoch=0,
                last_timestamp=1_700_000_000_000,
                batches=(BatchMetadata(4, 4, 4, 1_700_000_000_000),),
                seen_ms=LOADED_MS,
            ),
            ProducerEntry(
                2000,
                producer_epoch=3,
                coordinator_epoch=7,
                last_timestamp=1_700_000_000_500,
                seen_ms=LOADED_MS,
            ),
            ProducerEntry(
                3000,
                producer_epoch=1,
                coordinator_epoch=2,
                last_timestamp=1_700_000_001_000,
                transaction_first_offset=10,
                batches=(BatchMetadata(2, 12, 2, 1_700_000_001_000),),
                seen_ms=LOADED_MS,
            ),
        ),
    ),
    (
        OPEN_TRANSACTION,
        (
            ProducerEntry(
                4000,
                producer_epoch=1,
                last_timestamp=1_700_000_000_150,
                transaction_first_offset=100,
                batches=(BatchMetadata(12, 102, 2, 1_700_000_000_150),),
                seen_ms=LOADED_MS,
            ),
        ),
    ),
]


@kafka("ProducerStateManagerTest.testReadWriteSnapshot")
@pytest.mark.parametrize(("content", "entries"), EXAMPLES, ids=["empty", "three", "open"])
def test_the_worked_examples_read_and_write(
    content: bytes, entries: tuple[ProducerEntry, ...]
) -> None:
    """The bytes of the specification are these entries, and these entries are those bytes."""
    assert decode_snapshot(content, loaded_ms=LOADED_MS) == entries
    assert encode_snapshot(entries) == content


def test_only_the_newest_batch_is_kept() -> None:
    """A reload shrinks the window to one batch, with the producer's own timestamp."""
    batches = (BatchMetadata(3, 30, 0, 100), BatchMetadata(4, 31, 0, 200))
    entry = ProducerEntry(1, producer_epoch=0, last_timestamp=300, batches=batches)
    (loaded,) = decode_snapshot(encode_snapshot([entry]), loaded_ms=5)
    assert loaded.batches == (BatchMetadata(4, 31, 0, 300),)
    assert loaded.seen_ms == 5


def resealed(content: bytes) -> bytes:
    """Give changed bytes the checksum that fits them."""
    return content[:2] + struct.pack(">I", crc32c(content[6:])) + content[6:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes has no header"),
        (EMPTY[:-1], "9 bytes has no header"),
        (b"\x00\x02" + EMPTY[2:], "version 2"),
        (EMPTY[:-1] + b"\x01", "crc 0x48674bc7 stored"),
        (THREE_PRODUCERS[:-46], "stored"),
        (THREE_PRODUCERS + b"\x00", "stored"),
        (bytes(148), "version 0"),
        (resealed(THREE_PRODUCERS[:-1]), "3 producers do not fit into 147 bytes"),
        (resealed(THREE_PRODUCERS + b"\x00"), "3 producers do not fit into 149 bytes"),
        (resealed(THREE_PRODUCERS[:10] + b"\xff" + THREE_PRODUCERS[11:]), "negative producer id"),
        (
            resealed(THREE_PRODUCERS[:10] + b"\xff" * 8 + THREE_PRODUCERS[18:]),
            "negative producer id",
        ),
        (resealed(EMPTY[:6] + struct.pack(">i", -1)), "-1 producers do not fit into 10 bytes"),
    ],
)
def test_damage_is_named(content: bytes, message: str) -> None:
    """Anything that is not exactly a snapshot is refused with the reason."""
    with pytest.raises(CorruptSnapshot, match=message):
        decode_snapshot(content, loaded_ms=0)


def test_every_flipped_bit_is_found() -> None:
    """No single changed bit gives another state."""
    for position in range(len(OPEN_TRANSACTION)):
        for bit in range(8):
            damaged = bytearray(OPEN_TRANSACTION)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptSnapshot):
                decode_snapshot(bytes(damaged), loaded_ms=0)


def test_sizes_are_those_of_the_format() -> None:
    """Ten bytes in front and 46 for each producer."""
    assert (HEADER.size, ENTRY.size) == (10, 46)
    assert len(encode_snapshot([ProducerEntry(1), ProducerEntry(2)])) == 102


@pytest.mark.parametrize(
    ("producer_ids", "expected"),
    [
        ([11, 10], [10, 11]),
        ([16, 1, 33], [16, 1, 33]),
        ([17, 1, 33], [1, 17, 33]),
        ([2**32, 3], [2**32, 3]),
        ([2**32 + 5, 3, 5], [3, 2**32 + 5, 5]),
        (list(range(19, 6, -1)), list(range(7, 20))),
        ([32, *range(12)], [0, 32, *range(1, 12)]),
    ],
)
def test_the_order_is_that_of_a_java_hash_table(
    producer_ids: list[int], expected: list[int]
) -> None:
    """Kafka writes its table as it iterates over it: small ids ascend, others by their slot."""
    entries = [ProducerEntry(producer_id) for producer_id in producer_ids]
    assert [entry.producer_id for entry in in_table_order(entries)] == expected
