"""Reads many zigzag varints at once, with NumPy over their positions."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Int64s: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

_LONGEST_SHIFT: Final = 63
_WITHOUT_SIGN: Final = (1 << 63) - 1

# The value of a first octet, and the sign that it gives to the following octets.
_SEVEN_BITS: Final[Int64s] = np.arange(256, dtype=np.int64) & 127
_ZIGZAG: Final[Int64s] = (_SEVEN_BITS >> 1) ^ -(_SEVEN_BITS & 1)
_SIGN: Final[Int64s] = 1 - 2 * (_SEVEN_BITS & 1)


class RecordError(ValueError):
    """The payload of a batch is not a sequence of records."""


def read_varints(octets: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Return the numbers at the positions, and their end positions; may raise IndexError."""
    first = octets[positions]
    is_longer = first >= 128
    if not is_longer.any():
        return _ZIGZAG[first], positions + 1
    # Most have one or two octets, and reading two of each is faster than selecting those with two.
    # A number truncated after its first octet reads that octet twice, and so looks longer.
    second = octets.take(positions + 1, mode="clip")
    if (second[is_longer] >= 128).any():
        return _read_long_varints(octets, positions, first)
    numbers = second.astype(np.int64) << 6
    numbers *= _SIGN[first]
    numbers *= is_longer
    numbers += _ZIGZAG[first]
    return numbers, positions + 1 + is_longer


def _read_long_varints(octets: Bytes, positions: Int64s, first: Bytes) -> tuple[Int64s, Int64s]:
    """Do the same, one octet at a time for the numbers that have more."""
    remaining = np.flatnonzero(first >= 128)
    values = (first & 127).astype(np.int64)
    after = positions + 1
    shift = 7
    while remaining.size:
        if shift > _LONGEST_SHIFT:
            raise RecordError("a varint has more than ten bytes")
        octet = octets[after[remaining]]
        values[remaining] |= (octet & 127).astype(np.int64) << shift
        after[remaining] += 1
        shift += 7
        remaining = remaining[octet >= 128]
    return (values >> 1 & _WITHOUT_SIGN) ^ -(values & 1), after
