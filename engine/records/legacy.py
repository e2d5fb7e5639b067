"""Messages of magic 0 and 1, formats before Kafka 0.11, as far as damage must be told from them.

offset   8 bytes
size     4 bytes   after this field
crc      4 bytes   CRC-32, not CRC-32C, of everything from `magic` on
magic    1 byte
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from engine.records.header import LOG_OVERHEAD_BYTES, MAGIC_POSITION
from engine.types import Buffer

_SIZE_AND_CRC: Final = struct.Struct(">iI")
_SIZE_POSITION: Final = 8

assert _SIZE_POSITION + _SIZE_AND_CRC.size == MAGIC_POSITION, "the checksum ends at the magic byte"


def is_intact_message(buffer: Buffer, position: int = 0) -> bool:
    """Whether a whole message of magic 0 or 1 stands at `position` and its checksum is right.

    Torn and damaged bytes claim any magic; only a message that was written has its checksum.
    """
    size, crc = _SIZE_AND_CRC.unpack_from(buffer, position + _SIZE_POSITION)
    end = position + LOG_OVERHEAD_BYTES + size
    if end > len(buffer):
        return False
    return zlib.crc32(memoryview(buffer)[position + MAGIC_POSITION : end]) == int(crc)
