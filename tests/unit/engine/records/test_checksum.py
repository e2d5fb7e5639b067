"""CRC-32C."""

from engine.records.checksum import crc32c


def test_the_polynomial_is_castagnoli() -> None:
    """The check value of CRC-32C in every catalogue, and that of no bytes."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_a_checksum_can_be_continued_over_any_buffer() -> None:
    """Two halves, one of them a view, give the checksum of the whole."""
    whole = bytes(range(256))
    assert crc32c(memoryview(whole)[100:], crc32c(bytearray(whole[:100]))) == crc32c(whole)
