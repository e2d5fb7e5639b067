"""Data directories that are filled before a service is started on them, by the engine alone.

What is there stays, more is added: a curve goes on where it was. Over HTTP it would take as long as
all that is measured then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from engine.config import EngineConfig
from engine.manager.manager import LogManager
from engine.runtime import Runtime
from engine.types import TopicPartition

_KEEP: Final = {"retention.ms": "-1"}

_UNFLUSHED: Final = 500
"""Batches between two flushes: each may be a segment, of five open files until it is flushed."""

_NEW_AT_ONCE: Final = 1_000
"""A new partition has five files open, one that was found by a start has one."""


def have_partitions(folder: Path, topic: str, count: int) -> None:
    """Have a topic with so many partitions in the data directory; it may have fewer."""
    with opened(folder) as manager:
        if topic not in manager.topics():
            manager.create_topic(topic, 1, _KEEP)
        there = manager.topics()[topic].partitions
    for many in (*range(there + _NEW_AT_ONCE, count, _NEW_AT_ONCE), count):
        with opened(folder) as manager:
            manager.update_topic(topic, partitions=many)


def have_bytes(folder: Path, topic: str, batch: bytes, size_bytes: int, **config: str) -> None:
    """Have so many bytes of this batch in the one partition of a topic; it may have fewer.

    In the names of its settings `_` stands for `.`.
    """
    settings = {name.replace("_", "."): value for name, value in config.items()}
    with opened(folder) as manager:
        manager.create_topic(topic, 1, {**_KEEP, **settings})
        log = manager.log(TopicPartition(topic, 0))
        while (missing := -(-(size_bytes - log.reader.size_bytes) // len(batch))) > 0:
            for _ in range(min(missing, _UNFLUSHED)):
                log.append(bytearray(batch), checked=True)
            log.durability.flush()


@contextmanager
def opened(folder: Path, config: EngineConfig | None = None) -> Iterator[LogManager]:
    """Yield the manager of the data directory; afterwards it is flushed and stopped cleanly."""
    runtime = Runtime(folder, config)
    runtime.open()
    try:
        yield runtime.manager
    finally:
        runtime.close()
