"""What the parts of one log share: its locks, its state, and whether it is open.

A part is made once and holds the core for good. Context and state are replaced, under all locks,
when the log goes on in another data directory: a part reads them from the core each time, and keeps
the pair it has read for as long as one step takes.
"""

from __future__ import annotations

import threading
from typing import Final

from engine.errors import StorageOffline, TopicNotFound
from engine.log.context import LogContext
from engine.log.state import LogState
from engine.types import TopicPartition


class LogCore:
    """The locks are taken in the order in which they stand here; see docs/concurrency.md."""

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
        """Whether the topic was deleted: readers go on, an append would be lost."""
        self.reshaping: Final = threading.Lock()
        """While held, no segment leaves the log."""
        self.syncing: Final = threading.Lock()
        """While held, no other thread syncs what was appended."""
        self.naming: Final = threading.Lock()
        """While held, the directory keeps its name."""
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
