"""Deletes partitions: renames them at once, removes them after file.delete.delay.ms."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

from engine.errors import Overloaded, StorageFull
from engine.fs import names
from engine.log.context import LogContext
from engine.log.log import Log
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)


class Deletion:
    """Renames partition directories to `…-delete` and removes them after file.delete.delay.ms.

    The next start removes what a stop left. Kafka's `LogManager.asyncDelete` and its
    `kafka-delete-logs` task. `sync` syncs the data directory.
    """

    def __init__(self, context: LogContext, sync: Callable[[], None], *, delay_ms: int) -> None:
        self._context = context
        self._sync = sync
        self._delay_ms = delay_ms

    def retire(self, log: Log) -> None:
        """Rename the directory of a log that is no longer in the catalog; remove it later.

        Readers that hold the log can continue until then.
        """
        target = self._unused_name(log.topic_partition, log.directory)
        log.maintenance.rename_directory(target)
        self.remove_later(target, log.maintenance.close_handles)

    def put_away(self, topic_partition: TopicPartition, path: Path) -> Path:
        """Rename the directory of a log that is not open; return its path for `remove_later`.

        The caller syncs the parent.
        """
        target = self._unused_name(topic_partition, path)
        with self._context.health.writing:
            self._context.fs.rename(path, target)
        return target

    def discard(self, path: Path) -> None:
        """Remove an unused directory durably: a half-made partition, or an abandoned copy.

        If too many files are open to list it, it is renamed, which needs no descriptor, and removed
        later.
        """
        health = self._context.health
        try:
            with health.trying:
                if not self._context.fs.exists(path):
                    return
                self._context.fs.remove_tree(path)
        except (Overloaded, StorageFull) as error:
            _LOG.warning("the removal of %s is postponed: %s", path, error)
            topic_partition = names.parse_partition_directory(path.name).topic_partition
            self.remove_later(self.put_away(topic_partition, path))
        self._sync()

    def remove_later(self, path: Path, close: Callable[[], None] | None = None) -> None:
        """Remove a directory after the delay; `close` closes its files, if any are open."""
        self._context.scheduler.once(
            f"delete {path.name}", self._delay_ms, partial(self._remove, path, close)
        )

    def _unused_name(self, topic_partition: TopicPartition, path: Path) -> Path:
        return path.with_name(names.delete_directory_name(topic_partition, uuid.uuid4().hex))

    def _remove(self, path: Path, close: Callable[[], None] | None) -> None:
        if self._context.health.is_offline:
            return  # the next start finds it by its suffix
        if close is not None:
            close()
        try:
            with self._context.health.trying:
                if self._context.fs.exists(path):
                    self._context.fs.remove_tree(path)
        except (Overloaded, StorageFull) as error:
            _LOG.warning("the removal of %s is postponed: %s", path, error)
            self.remove_later(path)
        else:
            _LOG.info("removed %s", path)
