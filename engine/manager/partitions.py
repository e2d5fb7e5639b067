"""Creates partition directories, opens their logs, and deletes them.

A deleted partition is renamed at once, and removed after file.delete.delay.ms.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from engine.checkpoint.kafka_files import read_topic_id, write_epochs, write_topic_id
from engine.errors import (
    CorruptCheckpoint,
    InvalidDataDirectory,
    Overloaded,
    StorageError,
    StorageFull,
    TopicConflict,
)
from engine.fs import names
from engine.fs.directories import misplaced
from engine.log.files import LogContext
from engine.log.log import Log
from engine.log.open.loader import LoadRequest
from engine.manager.topics import Topic
from engine.types import EpochOffset, TopicPartition

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


@dataclass(frozen=True, slots=True)
class LeftState:
    """How the last owner left a data directory; the default is for a new log."""

    was_clean: bool = True
    recovery_points: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)


Fill: TypeAlias = Callable[[Topic, TopicPartition, Path], LeftState]
"""Writes the files of a log into an empty directory, durably, and says where the log ends."""


class Partitions:
    """Creates and opens the partitions of one data directory. An OSError takes it offline.

    Except an OSError of a single file while a log is opened: it only concerns that log.
    """

    def __init__(self, context: LogContext, directory: Path, deletion: Deletion) -> None:
        self._context = context
        self._fs = context.fs
        self._directory = directory
        self._linked: dict[Path, Path] = {}
        """The links of partitions by the directories they lead to. Written during the start."""
        self._deletion = deletion

    def path_of(self, log: TopicPartition) -> Path:
        return self._directory / names.partition_directory_name(log)

    def read_topic_id(self, path: Path) -> str | None:
        """Return the topic id in a partition directory; None if it is missing or unreadable.

        InvalidDataDirectory if the path is not a directory or the file is not a regular file;
        OSError of that file.
        """
        file = path / names.PARTITION_METADATA
        try:
            with self._context.health.opening:
                if not self._fs.is_directory(path):
                    self._ensure_linked(path)
                try:
                    return read_topic_id(self._fs, file)
                except IsADirectoryError as error:
                    raise misplaced(file) from error
        except CorruptCheckpoint as error:
            _LOG.warning("ignoring a topic id: %s", error)
            return None

    def _ensure_linked(self, path: Path) -> None:
        """Raise InvalidDataDirectory unless a link leads to a directory that only it leads to.

        As Kafka does, a partition that an operator has put elsewhere is served there.
        """
        place, own = self._fs.real_directory(path), self._fs.real_directory(self._directory)
        if place is None:
            what = "leads to no directory; put the partition's files there"
        elif self._linked.setdefault(place, path) != path:
            what = f"leads to {place}, as {self._linked[place].name} does; remove one of the links"
        elif own is None or place.is_relative_to(own):
            what = f"leads to {place}, into the data directory itself; remove the link"
        else:
            return
        raise InvalidDataDirectory(f"{path} {what}", name=path.name, file=str(path))

    def ensure_free(self, topic: Topic, log: TopicPartition) -> None:
        """Raise TopicConflict if the directory of a new partition exists and is not the topic's."""
        path = self.path_of(log)
        with self._context.health.reading:
            is_taken = self._fs.exists(path)
        if is_taken:
            raise TopicConflict(
                f"{path.name} exists and belongs to no topic; a restart would adopt it",
                topic=topic.name,
                directory=path.name,
            )

    def make(self, topic: Topic, log: TopicPartition) -> Log:
        """Create the directory of a new partition and open its empty log.

        After StorageFull and Overloaded nothing is left, and the data directory stays online.
        """
        path = self.path_of(log)
        try:
            self.make_directory(topic, path)
            with self._context.health.appending:
                return self.open(topic, log, path, LeftState())
        except (Overloaded, StorageFull):
            self._deletion.discard(path)
            raise

    def take_in(self, topic: Topic, log: TopicPartition, fill: Fill) -> Log:
        """Create a partition whose files `fill` writes, and open its log; a failure leaves nothing.

        Raises what `fill` raises, StorageError, and an OSError of a single file.
        """
        path = self.path_of(log)
        try:
            self.make_directory(topic, path)
            with self._context.health.trying:
                left = fill(topic, log, path)
            return self.open(topic, log, path, left)
        except BaseException:
            with contextlib.suppress(Overloaded, StorageError):
                self._deletion.discard(path)
            raise

    def make_directory(self, topic: Topic, path: Path) -> None:
        """Create or complete a partition's directory, with the topic id in it.

        Its name is durable once the caller has synced the data directory.
        """
        with self._context.health.appending:
            self._fs.make_directory(path)
            write_topic_id(self._fs, path / names.PARTITION_METADATA, topic.topic_id)

    def begin_anew(self, path: Path) -> None:
        """Mark a directory that may replace a lost partition with a new, higher leader epoch.

        A `log_id` must not refer to another log. The epoch is the minutes since 1970, which rise
        faster than epochs do.
        """
        epoch = self._context.clock.now_ms() // 60_000
        with self._context.health.appending:
            self._fs.make_directory(path)
            write_epochs(self._fs, path / names.LEADER_EPOCH_CHECKPOINT, [EpochOffset(epoch, 0)])

    def give_name(self, log: TopicPartition, path: Path) -> Path:
        """Rename a directory to the partition's name and return the path; the caller syncs."""
        target = self.path_of(log)
        with self._context.health.writing:
            self._fs.rename(path, target)
        return target

    def empty(self, path: Path) -> None:
        """Remove the content of a directory, if it exists, and keep the directory.

        It is unused; if too many files are open, some of the content may stay.
        """
        with self._context.health.trying:
            for name in self._fs.list_directory(path) if self._fs.exists(path) else ():
                if self._fs.is_directory(path / name):
                    self._fs.remove_tree(path / name)
                else:
                    self._fs.remove(path / name)

    def open(self, topic: Topic, log: TopicPartition, path: Path, left: LeftState) -> Log:
        """Open a log; after a crash repair and flush it.

        Afterwards high watermark, recovery point and log end are equal: after an unclean stop it is
        unknown how much of the tail was on disk, so all of it is flushed before readers see it.
        """
        config = topic.log_config(self._context.config.default_topic_config)
        request = LoadRequest(
            path,
            config,
            left.recovery_points.get(log, 0),
            left.log_starts.get(log, 0),
            left.was_clean,
            left.high_watermarks.get(log, 0),
            is_gapless=topic.is_gapless(config),
            begins_in_archive=config.remote_storage_enable and log in left.log_starts,
        )
        with self._context.health.opening:
            opened = Log.open(self._context, log, topic.topic_id, request)
        if not left.was_clean:
            try:
                opened.durability.flush()
            except BaseException:
                opened.maintenance.close_handles()
                raise
        return opened
