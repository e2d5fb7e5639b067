"""The checksum of a record batch, for those who need it."""

from __future__ import annotations


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C of the bytes.

    The library takes a fifth of the time in which a Python process of ours starts, because it looks
    up its own version; who plans, and who believes the service's checks, never loads it.
    """
    import crc32c as library  # noqa: PLC0415 -- as said

    checksum: int = library.crc32c(data)
    return checksum
