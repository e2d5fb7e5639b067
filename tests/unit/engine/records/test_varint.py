"""Variable-length integers: Kafka's boundary values and what must not be read."""

import pytest

from engine.errors import InvalidRecord
from engine.records import varint
from tests.support.kafka import kafka

BOTH = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (150, "ac02"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
LONG_ONLY = [
    (2**31, "8080808010"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@kafka("ByteUtilsTest.testVarintSerde")
@pytest.mark.parametrize(("value", "encoded"), BOTH)
def test_32_bit_numbers_have_the_bytes_of_kafka(value: int, encoded: str) -> None:
    """Encoding, decoding and the size agree with Kafka's table, at any position."""
    raw = bytes.fromhex(encoded)
    assert varint.encode_varint(value) == raw
    assert varint.decode_varint(b"\xff" + raw + b"\xff", 1) == (value, 1 + len(raw))
    assert varint.size_of_varint(value) == len(raw)


@kafka("ByteUtilsTest.testVarlongSerde")
@pytest.mark.parametrize(("value", "encoded"), BOTH + LONG_ONLY)
def test_64_bit_numbers_have_the_bytes_of_kafka(value: int, encoded: str) -> None:
    """The 64-bit form agrees with the 32-bit one and extends it."""
    raw = bytes.fromhex(encoded)
    assert varint.encode_varlong(value) == raw
    assert varint.decode_varlong(raw, 0) == (value, len(raw))


@kafka("ByteUtilsTest.testInvalidVarint")
@pytest.mark.parametrize("encoded", ["ffffffffff01", "808080808000", "8080808010", "ffffffff1f"])
def test_more_than_32_bits_are_refused(encoded: str) -> None:
    """A sixth byte, even of zeros, and bits that do not fit raise instead of being cut off."""
    with pytest.raises(InvalidRecord, match="more than 32 bits"):
        varint.decode_varint(bytes.fromhex(encoded), 0)


@kafka("ByteUtilsTest.testInvalidVarlong")
@pytest.mark.parametrize("encoded", ["80" * 10 + "00", "ff" * 9 + "02", "ff" * 10 + "01"])
def test_more_than_64_bits_are_refused(encoded: str) -> None:
    """An eleventh byte and bits beyond the sixty-fourth raise."""
    with pytest.raises(InvalidRecord, match="more than 64 bits"):
        varint.decode_varlong(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["", "80", "ffff"])
def test_bytes_that_end_inside_a_number_are_refused(encoded: str) -> None:
    """Nothing is read past the end of the bytes."""
    with pytest.raises(InvalidRecord, match="end inside a number"):
        varint.decode_varint(bytes.fromhex(encoded), 0)
    with pytest.raises(InvalidRecord, match="end inside a number"):
        varint.decode_varlong(bytes.fromhex(encoded), 0)
