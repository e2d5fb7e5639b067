"""The records of the offsets topic: Kafka's schemas, byte by byte."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.store.local.group_offsets import (
    UnreadableCursor,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    partition_of_group,
)
from app.store.port import CursorKey, CursorValue

KEY = b"\x00\x01\x00\x02gr\x00\x01t\x00\x00\x00\x07"
OFFSET = (300).to_bytes(8, "big")
TIME = (1788000000000).to_bytes(8, "big")


def test_a_key_is_version_group_topic_and_partition() -> None:
    """The bytes are those of Kafka's OffsetCommitKey."""
    assert encode_key(CursorKey("gr", "t", 7)) == KEY
    assert decode_key(KEY) == CursorKey("gr", "t", 7)
    assert decode_key(b"\x00\x00" + KEY[2:]) == CursorKey("gr", "t", 7)


@pytest.mark.parametrize("version", [2, 3, 17])
def test_a_brokers_other_records_are_no_cursors(version: int) -> None:
    """Keys of groups' memberships and of newer coordinators are left alone."""
    assert decode_key(struct.pack(">h", version) + b"whatever") is None


@pytest.mark.parametrize(
    ("content", "epoch"),
    [
        (b"\x00\x00" + OFFSET + b"\x00\x02mm" + TIME, -1),
        (b"\x00\x01" + OFFSET + b"\x00\x02mm" + TIME + b"\x00" * 8, -1),
        (b"\x00\x02" + OFFSET + b"\x00\x02mm" + TIME, -1),
        (b"\x00\x03" + OFFSET + b"\x00\x00\x00\x05\x00\x02mm" + TIME, 5),
        (b"\x00\x04" + OFFSET + b"\x00\x00\x00\x05\x03mm" + TIME + b"\x00", 5),
        (b"\x00\x04" + OFFSET + b"\x00\x00\x00\x05\x83\x00mm" + TIME + b"\x01\x00\x01x", 5),
    ],
)
def test_every_version_of_a_value_is_read(content: bytes, epoch: int) -> None:
    """Versions 0 to 4 of Kafka's OffsetCommitValue, with and without tagged fields."""
    assert decode_value(content) == CursorValue(300, epoch, "mm", 1788000000000)


def test_a_value_is_written_as_brokers_have_read_it_since_2_1() -> None:
    """Version 3: offset, leader epoch, metadata, time of the commit."""
    written = encode_value(CursorValue(300, 5, "mm", 1788000000000))
    assert written == b"\x00\x03" + OFFSET + b"\x00\x00\x00\x05\x00\x02mm" + TIME


@given(st.text(max_size=40), st.text(max_size=40), st.integers(0, 2**31 - 1))
def test_keys_come_back(group: str, topic: str, partition: int) -> None:
    """Whatever the names, what was encoded is decoded."""
    key = CursorKey(group, topic, partition)
    assert decode_key(encode_key(key)) == key


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x05" + OFFSET,
        b"\x00\x03" + OFFSET[:5],
        b"\x00\x03" + OFFSET + b"\x00\x00\x00\x05\xff\xff" + TIME,
        b"\x00\x03" + OFFSET + b"\x00\x00\x00\x05\x00\x02\xff\xff" + TIME,
        b"\x00\x04" + OFFSET + b"\x00\x00\x00\x05" + b"\x80" * 20,
        b"\x00\x04" + OFFSET + b"\x00\x00\x00\x05\x00" + TIME,
    ],
)
def test_what_is_no_value_is_said_to_be_none(content: bytes) -> None:
    """Truncated fields, strings that are not UTF-8 or not terminated, versions of the future."""
    with pytest.raises(UnreadableCursor):
        decode_value(content)


@pytest.mark.parametrize(
    ("group", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("console-consumer-1", 35_782_224),
        ("polygenelubricants", 0),
        ("grüße", 98_768_023),
        ("😀", 1_772_899),
    ],
)
def test_a_group_lies_where_kafka_puts_it(group: str, hashed: int) -> None:
    """Java's hash over UTF-16, its sign dropped; the one hash without a positive twin is 0."""
    assert partition_of_group(group, 2**31) == hashed
    assert partition_of_group(group, 50) == hashed % 50
