"""One data directory: its lock, clean-shutdown marker, checkpoints and partitions.

`engine.manager.directories` combines several. Kafka's `LogManager`, for one of its `log.dirs`. If
the topics file cannot be read and no other directory has a copy, startup fails, because its content
cannot be rebuilt; checkpoints can.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.checkpoint.kafka_files import CleanShutdownMarker
from engine.checkpoint.tidelog_files import (
    DirectorySet,
    ProducerIds,
    TopicEntry,
    TopicsCopy,
    TopicsFile,
    read_directory_set,
    write_directory_set,
)
from engine.config import LogConfig
from engine.errors import CorruptCheckpoint, InvalidDataDirectory, Overloaded, StorageError
from engine.fs import names
from engine.fs.directories import DirectoryLock, ensure_directory, ensure_files
from engine.fs.names import DirectoryKind, ParsedDirectory, parse_partition_directory
from engine.fs.port import OpenDirectory
from engine.log.files import LogContext
from engine.log.log import Log
from engine.log.maintenance import DueForRelease
from engine.log.results import LogTag
from engine.manager.checkpoints import Checkpoints
from engine.manager.partitions import Deletion, LeftState, Partitions
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

_FILES: Final = (
    names.LOCK_FILE,
    names.CLEAN_SHUTDOWN_FILE,
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
    names.TOPICS_FILE,
    names.PRODUCER_ID_FILE,
    names.DIRECTORIES_FILE,
    names.ARCHIVE_FILE,
    names.DAMAGE_FILE,
    names.RESTORE_FILE,
)
_STAGING_FILES: Final = tuple(name + names.TEMPORARY_SUFFIX for name in _FILES)
_NOT_PARTITIONS: Final = names.NOT_PARTITIONS


@dataclass(frozen=True, slots=True)
class Contents:
    """The sub-directories by kind."""

    live: dict[TopicPartition, Path] = field(default_factory=dict)
    deleted: list[Path] = field(default_factory=list)
    future: list[Path] = field(default_factory=list)
    """Copies of partitions that were being moved to this directory."""
    set_aside: list[Path] = field(default_factory=list)
    """Strays and Kafka's metadata, which are not touched."""


class DataDirectory:
    """A data directory, and its files that belong to no partition. Locked from `take` to `release`.

    `arriving` are logs that are being moved to it: the checkpoints have their lines before their
    directories have their final names.
    """

    def __init__(self, context: LogContext) -> None:
        fs, path = context.fs, context.health.directory
        self.path = path
        self.context = context
        self.health = context.health
        self.left = LeftState()
        defaults = LogConfig.of(context.config.default_topic_config)
        self.deletion = Deletion(context, self.sync, delay_ms=defaults.file_delete_delay_ms)
        self.partitions = Partitions(context, path, self.deletion)
        self.checkpoints = Checkpoints(fs, context.health)
        self.producer_ids = ProducerIds(fs, path)
        self.arriving: tuple[Log, ...] = ()
        self._topics_file = TopicsFile(fs, path)
        self._fs = fs
        self._marker = CleanShutdownMarker(fs, path)
        self._lock: DirectoryLock | None = None
        self._names: OpenDirectory | None = None

    def take(self) -> None:
        """Lock the directory; create it if it is missing.

        Raises DirectoryLocked if another process owns it, StorageOffline if the disk fails.
        """
        with self.health.writing:
            ensure_directory(self._fs, self.path)
            ensure_files(self._fs, self.path, (*_FILES, *_STAGING_FILES))
            self._lock = DirectoryLock(self._fs, self.path)
            self.health.watch(self._lock)
            # Kept open, so that renames of partitions can be synced even if too many files are
            # open.
            self._names = self._fs.open_directory(self.path)
            # Before the first write: it reports only the failures of writes that come after it.
            self.health.file_system = self._fs.open_file_system(self.path)

    def begin(self) -> None:
        """Read into `left` how the last owner left the directory; a crash now counts as unclean.

        The marker is deleted before the first log is opened, but not if startup is refused.
        """
        if self._fs.exists(self.path / names.RESTORE_FILE):
            raise InvalidDataDirectory(
                f"a restore into {self.path} has not ended ({names.RESTORE_FILE} is there): run "
                "the same `tidelog restore` again, which goes on, or choose another directory",
                name=names.RESTORE_FILE,
            )
        # Renames of a crashed process may not be durable yet, and the start relies on them.
        self.sync()
        with self.health.writing:
            was_clean = self._marker.exists()
            if was_clean:
                self._marker.delete()
        self.left = LeftState(was_clean, *self.checkpoints.read())
        self.context.damage.load()

    def release(self) -> None:
        """Release the lock, if it is held. May be called again."""
        if self._names is not None:
            self._names.close()
            self._names = None
        if self.health.file_system is not None:
            self.health.file_system.close()
            self.health.file_system = None
        if self._lock is not None:
            self.health.watch(None)
            self._lock.release()
            self._lock = None

    def contents(self) -> Contents:
        """Return the sub-directories by kind; files are ignored.

        Raises InvalidDataDirectory for unknown names and for two directories of one partition:
        guessing could serve or delete unrelated files.
        """
        contents = Contents()
        with self.health.reading:
            found = self._fs.list_entries(self.path)
        for name, is_directory, is_file in found:
            if name in _NOT_PARTITIONS or is_file:
                continue
            path = self.path / name
            try:
                parsed = parse_partition_directory(name)
                if is_directory or parsed.kind.may_be_link:
                    _classify(contents, path, parsed)
            except InvalidDataDirectory:
                if not is_directory:
                    continue
                _LOG.exception("%s cannot be opened because of %s", self.path, name)
                raise
        return contents

    def read_set(self) -> DirectorySet | None:
        """Return the set of directories this one belongs to, if recorded; CorruptCheckpoint."""
        with self.health.reading:
            return read_directory_set(self._fs, self.path)

    def write_set(self, known: DirectorySet) -> None:
        """Write the set of directories this one belongs to, durably."""
        with self.health.appending:
            write_directory_set(self._fs, self.path, known)

    def read_topics(self) -> TopicsCopy:
        """Return the content of the topics file; CorruptCheckpoint if it is damaged."""
        try:
            with self.health.reading:
                return self._topics_file.read_copy()
        except CorruptCheckpoint as error:
            raise CorruptCheckpoint(
                f"{error}; restore it from a copy, or move it away: topics are then adopted from "
                "their directories, without their configuration",
                **error.facts(),
            ) from error

    def write_topics(self, entries: Mapping[str, TopicEntry], generation: int) -> None:
        """Replace the topics file, durably. StorageFull leaves the old one and stays online."""
        with self.health.appending:
            self._topics_file.write(entries, generation)

    def holds(self, log: Log) -> bool:
        """Whether the log is in this directory now."""
        return log.directory.parent == self.path

    def sync(self) -> None:
        """Return once the names of the sub-directories would survive a power cut."""
        with self.health.writing:
            assert self._names is not None, "the directory is locked and online"
            self._names.sync_all()

    def write_checkpoints(self, logs: Callable[[], Iterable[Log]]) -> None:
        """Write the checkpoints of the logs in this directory; see `Checkpoints.write`."""
        self.checkpoints.write(lambda: self._here(logs()))

    def try_to_write_checkpoints(self, logs: Callable[[], Iterable[Log]]) -> None:
        """As `write_checkpoints`, but log a failure: what happened need not be recorded now.

        The next checkpoint records it. Until then a start has more to scan, or finds an unused
        line.
        """
        try:
            self.write_checkpoints(logs)
        except (Overloaded, StorageError) as error:
            _LOG.warning("the checkpoints in %s are postponed: %s", self.path, error)

    def truncate(
        self,
        logs: Callable[[], Iterable[Log]],
        log: Log,
        offset: int,
        expected_tag: LogTag | None,
    ) -> int:
        """Truncate a log, with no checkpoint ever above its end; see `Checkpoints.truncate`."""
        return self.checkpoints.truncate(lambda: self._here(logs()), log, offset, expected_tag)

    def delete_records(
        self, logs: Callable[[], Iterable[Log]], log: Log, before_offset: int
    ) -> int:
        """Write a log start to disk, then raise it; see `Checkpoints.delete_records`."""
        return self.checkpoints.delete_records(lambda: self._here(logs()), log, before_offset)

    def release_segments(
        self, logs: Callable[[], Iterable[Log]], log: Log, due: DueForRelease
    ) -> bool:
        """Remove segments that the archive has; see `Checkpoints.release`."""
        return self.checkpoints.release(lambda: self._here(logs()), log, due)

    def _here(self, logs: Iterable[Log]) -> list[Log]:
        return [*filter(self.holds, logs), *self.arriving]

    def mark_clean(self) -> None:
        """Write the clean-shutdown marker: every log was flushed and closed."""
        with self.health.appending:
            self._marker.write()


def _classify(contents: Contents, path: Path, parsed: ParsedDirectory) -> None:
    log = parsed.topic_partition
    if parsed.kind is DirectoryKind.DELETED:
        contents.deleted.append(path)
    elif parsed.kind is DirectoryKind.FUTURE:
        contents.future.append(path)
    elif parsed.kind is not DirectoryKind.LIVE:
        _LOG.warning("%s is kept but not served", path)
        contents.set_aside.append(path)
    elif parsed.topic == names.CLUSTER_METADATA_TOPIC:
        contents.set_aside.append(path)
    elif log in contents.live:
        other = contents.live[log]
        raise InvalidDataDirectory(
            f"{other.name!r} and {path.name!r} both hold partition {log}; move one of them away",
            name=path.name,
        )
    else:
        contents.live[log] = path
