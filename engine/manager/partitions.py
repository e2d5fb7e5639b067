"""Creates partition directories and opens their logs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.checkpoint.epochs import write_epochs
from engine.checkpoint.partition_metadata import read_topic_id, write_topic_id
from engine.errors import (
    CorruptCheckpoint,
    InvalidDataDirectory,
    Overloaded,
    StorageFull,
    TopicConflict,
)
from engine.fs import names
from engine.fs.places import misplaced
from engine.log.context import LogContext
from engine.log.log import Log
from engine.log.open.loader import LoadRequest
from engine.manager.deletion import Deletion
from engine.manager.topics import Topic
from engine.types import EpochOffset, TopicPartition

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeftState:
    """How the last owner left a data directory; the default is for a new log."""

    was_clean: bool = True
    recovery_points: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)


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
