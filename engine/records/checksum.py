"""CRC-32C (Castagnoli), and the one place that names the library."""

from __future__ import annotations

import crc32c as _crc32c

from engine.types import Buffer


def crc32c(buffer: Buffer, value: int = 0) -> int:
    """Return the checksum of the bytes as an unsigned 32-bit number, continuing from `value`."""
    return _crc32c.crc32c(buffer, value)
