"""Kafka's default partitioner: a key lands where a Kafka producer would put it."""

from __future__ import annotations

from functools import lru_cache

from aiokafka.partitioner import murmur2


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key; few keys repeat often, so the hashes are kept."""
    hashed: int = murmur2(key)
    return (hashed & 0x7FFFFFFF) % partitions
