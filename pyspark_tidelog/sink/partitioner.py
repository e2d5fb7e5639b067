"""Kafka's default partitioner, for a whole column: murmur2 of all keys at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_tidelog.records.encode import string_places
from pyspark_tidelog.records.varints import Int64s

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995


def partitions_of(keys: pa.Array, count: int) -> Int64s:
    """Return the partition to which a Kafka producer sends each key; undefined for a null."""
    return (_murmur2(keys) & 0x7FFFFFFF) % count


def _murmur2(keys: pa.Array) -> Int64s:
    """Return the unsigned hashes: one round for the first four bytes of all keys, and so on."""
    octets, starts, lengths = string_places(keys)
    multiplier = np.uint32(_MULTIPLIER)
    state = (np.int64(_SEED) ^ lengths).astype(np.uint32)
    for nth in range(int(lengths.max(initial=0)) // 4):
        rows = np.flatnonzero(lengths >= 4 * (nth + 1))
        word = _word(octets, starts[rows] + 4 * nth, np.full(len(rows), 4, np.int64))
        word *= multiplier
        word = (word ^ (word >> np.uint32(24))) * multiplier
        state[rows] = state[rows] * multiplier ^ word
    rests = lengths % 4
    rows = np.flatnonzero(rests)
    rest = _word(octets, starts[rows] + lengths[rows] - rests[rows], rests[rows])
    state[rows] = (state[rows] ^ rest) * multiplier
    state = (state ^ (state >> np.uint32(13))) * multiplier
    return (state ^ (state >> np.uint32(15))).astype(np.int64)


def _word(octets: np.ndarray, starts: Int64s, sizes: Int64s) -> np.ndarray:
    """Return up to four bytes from each start as one little-endian number."""
    word = np.zeros(len(starts), np.uint32)
    for nth in range(4):
        rows = np.flatnonzero(sizes > nth)
        word[rows] |= octets[starts[rows] + nth].astype(np.uint32) << np.uint32(8 * nth)
    return word
