"""Kafka's default partitioner: murmur2 of the key, so that a key lands where a Kafka producer puts it."""

from __future__ import annotations

from functools import lru_cache

from aiokafka.partitioner import murmur2


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key; few keys repeat often, so the hashes are kept."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
