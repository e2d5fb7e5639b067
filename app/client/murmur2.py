"""Kafka's partitioner: murmur2 of the key, as the Java client computes it."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_CACHED_KEYS: Final = 65_536


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit hash; Kafka's `Utils.murmur2` is the same bits, signed."""
    length = len(data)
    words = length // 4
    state = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _MASK
        state = state * _MULTIPLIER & _MASK ^ mixed
    rest = data[words * 4 :]
    if rest:
        state = (state ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15


@lru_cache(maxsize=_CACHED_KEYS)
def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition a Kafka producer puts `key` into; remembered, since keys come back."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
