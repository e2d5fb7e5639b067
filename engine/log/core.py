"""The shared core of a log's parts: its locks, its state, and whether it is open.

Every part keeps the same core. When the log moves to another data directory, context and state are
replaced under all locks. So a part reads both from the core at the start of each step, and uses
that pair until the step ends.
"""

from __future__ import annotations

import threading
from typing import Final

from engine.errors import StorageOffline, TopicNotFound, WouldBlock
from engine.log.context import LogContext
from engine.log.state import LogState
from engine.types import TopicPartition

PATIENCE_SECONDS: Final = 0.002
"""Longer than any step under a lock that does not wait for the disk; see docs/concurrency.md."""


class Impatient:
    """A lock for callers that must not wait: `with` raises WouldBlock after a short timeout."""

    __slots__ = ("_lock", "_seconds")

    def __init__(self, lock: threading.Lock, seconds: float = PATIENCE_SECONDS) -> None:
        self._lock = lock
        self._seconds = seconds

    def __enter__(self) -> None:
        acquire = self._lock.acquire
        if not (acquire(False) or acquire(timeout=self._seconds)):
            raise WouldBlock

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        self._lock.release()


class LogCore:
    """The locks are taken in the order of their definition; see docs/concurrency.md."""

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        topic_id: str,
        state: LogState,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.topic_id: Final = topic_id
        self.context = context
        self.state = state
        self.is_closed = False
        self.is_deleted = False
        """Whether the topic was deleted: reads continue, appends are refused."""
        self.reshaping: Final = threading.Lock()
        """While held, no segment is removed from the log."""
        self.syncing: Final = threading.Lock()
        """While held, no other thread commits."""
        self.naming: Final = threading.Lock()
        """While held, the directory is not renamed."""
        self.lock = threading.Lock()
        """Guards the state."""

    def ensure_open(self) -> None:
        """Raise StorageOffline if the log was closed."""
        if self.is_closed:
            raise self.closed()

    def ensure_kept(self) -> None:
        """Raise TopicNotFound if the topic was deleted."""
        if self.is_deleted:
            topic = self.topic_partition.topic
            raise TopicNotFound(f"topic {topic} was deleted", topic=topic)

    def closed(self) -> StorageOffline:
        """Return the error of an operation on a closed log."""
        name = str(self.topic_partition)
        return StorageOffline(f"{name} is closed", log=name)
