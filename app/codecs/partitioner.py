"""Kafka's default partitioner: a key lands where a Kafka producer would put it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from aiokafka.partitioner import murmur2

LONGEST_KEPT_BYTES: Final = 64
"""Longer keys are hashed each time: what is kept is bounded in bytes, not in keys alone."""


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key; few keys repeat often, so hashes of short ones are kept."""
    hashed = _kept_hash(key) if len(key) <= LONGEST_KEPT_BYTES else _hash(key)
    return hashed % partitions


def _hash(key: bytes) -> int:
    hashed: int = murmur2(key)
    return hashed & 0x7FFFFFFF


_kept_hash: Final = lru_cache(maxsize=65_536)(_hash)
