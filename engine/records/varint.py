"""Zig-zag variable-length integers, as record bodies use them.

Seven bits per byte, the least significant group first; 0x80 means that another byte follows. A
varint holds 32 bits in up to 5 bytes, a varlong 64 bits in up to 10. As in Kafka's `ByteUtils`,
another continuation byte is an error. Bits beyond the width are an error too: Kafka drops them,
other readers do not, and writers never produce them.
"""

from __future__ import annotations

from engine.errors import InvalidRecord
from engine.types import Buffer


def encode_varint(value: int) -> bytes:
    """Return a signed 32-bit number in 1 to 5 bytes."""
    return _encode(((value << 1) ^ (value >> 31)) & 0xFFFF_FFFF)


def encode_varlong(value: int) -> bytes:
    """Return a signed 64-bit number in 1 to 10 bytes."""
    return _encode(((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return a signed 32-bit number and the next position; `InvalidRecord` if it does not end."""
    unsigned, end = _decode(buffer, position, width_bits=32)
    return (unsigned >> 1) ^ -(unsigned & 1), end


def decode_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return a signed 64-bit number and the next position; `InvalidRecord` if it does not end."""
    unsigned, end = _decode(buffer, position, width_bits=64)
    return (unsigned >> 1) ^ -(unsigned & 1), end


def encode_unsigned_varint(value: int) -> bytes:
    """Return a number that is not negative without zig-zag, as Kafka's protocol has lengths."""
    return _encode(value)


def decode_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return such a number of at most 32 bits and the next position; raises `InvalidRecord`."""
    return _decode(buffer, position, width_bits=32)


def size_of_varint(value: int) -> int:
    """Return the size of the number as a varint."""
    return _size_of(((value << 1) ^ (value >> 31)) & 0xFFFF_FFFF)


def _encode(unsigned: int) -> bytes:
    encoded = bytearray()
    while unsigned > 0x7F:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


def _decode(buffer: Buffer, position: int, *, width_bits: int) -> tuple[int, int]:
    """Return the unsigned number and the next position."""
    unsigned = 0
    for shift in range(0, width_bits, 7):
        if position >= len(buffer):
            raise InvalidRecord("the bytes end inside a number")
        byte = buffer[position]
        position += 1
        unsigned |= (byte & 0x7F) << shift
        if byte < 0x80 and unsigned >> width_bits == 0:
            return unsigned, position
    raise InvalidRecord(f"a number has more than {width_bits} bits")


def _size_of(unsigned: int) -> int:
    return max(1, (unsigned.bit_length() + 6) // 7)
