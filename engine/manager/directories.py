"""The data directories together: what lies where, what every one of them keeps a copy of.

A directory that fails goes offline until the next start, and the others go on; Kafka's
`LogDirFailureChannel`. The topics file and the reserved producer ids are not one directory's
business, so each has a copy: a change counts when every directory that is online has it, and of
copies that differ the newest is right.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from engine.checkpoint.directory_set import DirectorySet
from engine.checkpoint.topics_file import TopicEntry, TopicsCopy
from engine.errors import (
    CorruptCheckpoint,
    InvalidDataDirectory,
    InvalidRequestValue,
    Overloaded,
    StorageError,
    StorageFull,
    StorageOffline,
)
from engine.fs import names
from engine.fs.health import DirectoryHealth
from engine.fs.names import parse_partition_directory, unique_id_of
from engine.log.log import Log
from engine.manager.directory import DataDirectory
from engine.manager.membership import decide
from engine.manager.offline import OfflineLog
from engine.manager.topics import Topic
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

MAX_BELIEVED_PRODUCER_ID: Final = 2**62
"""An id above this in a log was made up by a client: ids that exceed it would run out."""

UNSEEN_PRODUCER_IDS: Final = 2**32
"""How far ids jump when a directory cannot be asked: nobody reserves so many between two starts."""


@dataclass(slots=True)
class Inventory:
    """The partition directories of all data directories that are online."""

    live: dict[TopicPartition, Path] = field(default_factory=dict)
    deleted: list[Path] = field(default_factory=list)
    moving: dict[TopicPartition, Path] = field(default_factory=dict)
    """The directories of moves that were asked for and had come to nothing."""


class Directories:
    """All data directories of one engine; the first is preferred where all are equal.

    Whoever changes something holds the admin lock of the manager.
    """

    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self.all = tuple(directories)
        _ensure_distinct([directory.path for directory in self.all])
        self._newest = TopicsCopy()
        self._are_copies_equal = True
        self._id_source: DataDirectory | None = None
        self._allocating = threading.Lock()

    # -- life --------------------------------------------------------------------------------

    def take(self) -> None:
        """Own every directory whose disk works, and see that none is missing.

        StorageOffline if none works, DirectoryLocked; InvalidDataDirectory and CorruptCheckpoint
        leave everything as it was.
        """
        for directory in self.all:
            try:
                directory.take()
            except StorageOffline as error:
                self.ensure_any_online(error)
        self._ensure_complete()
        self.each_online(lambda directory: directory.begin())

    def _ensure_complete(self) -> None:
        found: dict[Path, DirectorySet | None] = {}
        damage: list[CorruptCheckpoint] = []

        def read(directory: DataDirectory) -> None:
            try:
                found[directory.path] = directory.read_set()
            except CorruptCheckpoint as error:
                damage.append(error)
                found[directory.path] = None

        self.each_online(read)
        if damage and not any(found.values()):
            raise damage[0]
        for damaged in damage:
            _LOG.error("%s; the copy of another data directory is believed", damaged)
        gone = self.all[0].context.config.gone_directories
        decided = decide(found, [one.path for one in self.offline], gone)
        for left_out in decided.left_out.values():
            _LOG.warning("%s is gone: what lay there is made anew, empty", left_out)
        if decided.files:
            self.each_online(lambda directory: directory.write_set(decided.files[directory.path]))

    def release(self) -> None:
        for directory in self.all:
            directory.release()

    def ensure_any_online(self, error: StorageOffline) -> None:
        """Raise `error` unless a directory is left to go on with."""
        if not self.online:
            raise error
        _LOG.error("going on without a data directory: %s", error)

    def distrust(self) -> None:
        """Note that logs were opened and let go of since the directories were taken."""
        for directory in self.all:
            directory.left = replace(directory.left, was_clean=False)

    # -- which ---------------------------------------------------------------------------------

    @property
    def online(self) -> tuple[DataDirectory, ...]:
        return tuple(one for one in self.all if not one.health.is_offline)

    @property
    def offline(self) -> tuple[DataDirectory, ...]:
        return tuple(one for one in self.all if one.health.is_offline)

    @property
    def health(self) -> DirectoryHealth:
        """That of the first directory which is online; offline only if all of them are."""
        return (*self.online, self.all[0])[0].health

    def of(self, path: Path) -> DataDirectory:
        """Return the directory in which a partition directory lies."""
        return next(one for one in self.all if one.path == path.parent)

    def at(self, path: Path) -> DataDirectory:
        """Return the directory of this path. InvalidRequestValue if there is none."""
        for directory in self.all:
            if directory.path.absolute() == path.absolute():
                return directory
        raise InvalidRequestValue(f"{path} is not a data directory of this log")

    def by_load(self, load: Mapping[Path, int]) -> list[DataDirectory]:
        """Return the directories that are online, those that hold the fewest partitions first."""
        return sorted(self.online, key=lambda directory: load.get(directory.path, 0))

    def make(self, topic: Topic, log: TopicPartition, load: Counter[Path]) -> Log:
        """Make a partition where there are the fewest; a directory that fails is passed over.

        `load` says how many there are in each directory, from here on with the new one. Raises
        TopicConflict if something is in the way, StorageOffline or StorageFull if no directory can
        take it.
        """
        for directory in self.online:
            directory.partitions.ensure_free(topic, log)
        failure: StorageError | None = None
        for directory in self.by_load(load):
            try:
                made = directory.partitions.make(topic, log)
                load[directory.path] += 1
                return made
            except (StorageOffline, StorageFull) as error:
                _LOG.error("%s is not made in %s: %s", log, directory.path, error)
                failure = failure or error
        raise failure or StorageOffline("all data directories are offline")

    def retire(self, log: Log) -> None:
        """Rename the directory of a deleted log; on a disk that is offline the next start does."""
        log.maintenance.refuse_appends()
        try:
            self.of(log.directory).deletion.retire(log)
        except StorageOffline as error:
            self.ensure_any_online(error)
            log.maintenance.close_handles()

    def put_away(self, logs: Iterable[OfflineLog]) -> None:
        """As `retire`, for deleted logs that could not be opened."""
        for log in logs:
            deletion = self.of(log.directory).deletion
            try:
                deletion.remove_later(deletion.put_away(log.topic_partition, log.directory))
            except StorageOffline as error:
                self.ensure_any_online(error)

    def leave_clean(self, logs: Callable[[], Iterable[Log]], unclean: Collection[Path]) -> None:
        """Write the checkpoints, and say that all logs were closed, but for `unclean` directories.

        Nothing raises. A log that could not be opened leaves its directory unclean: nobody knows
        whether it still has to be recovered.
        """
        for directory in self.all:
            try:
                if directory.path not in unclean:
                    directory.write_checkpoints(logs)
                    if not directory.checkpoints.kept:
                        directory.mark_clean()
            except (Overloaded, StorageError):
                _LOG.exception("the next start will recover all logs of %s", directory.path)

    def each_online(self, work: Callable[[DataDirectory], object]) -> None:
        """Do something in every directory; one whose disk fails meanwhile is left behind.

        StorageOffline if none is left.
        """
        for directory in self.online:
            try:
                work(directory)
            except StorageOffline as error:
                self.ensure_any_online(error)

    # -- what lies where -----------------------------------------------------------------------

    def take_stock(self) -> Inventory:
        """Return what there is. An interrupted move is finished if it was decided.

        Raises InvalidDataDirectory for two directories that hold the same partition.
        """
        found = {directory: directory.contents() for directory in self.online}
        stock = Inventory()
        for contents in found.values():
            stock.deleted += contents.deleted
            for log, path in contents.live.items():
                other = stock.live.setdefault(log, path)
                if other != path:
                    stock.live[log] = self._keep_one(stock, log, other, path)
        for directory, contents in found.items():
            for path in contents.future:
                self._settle_move(stock, directory, path)
        return stock

    def _keep_one(self, stock: Inventory, log: TopicPartition, first: Path, second: Path) -> Path:
        """Return the one of two directories that is served; the other never held anything."""
        for empty, kept in ((second, first), (first, second)):
            if self._is_empty(empty):
                _LOG.warning("%s never held anything and gives way to %s", empty, kept)
                stock.deleted.append(self.of(empty).deletion.put_away(log, empty))
                return kept
        raise InvalidDataDirectory(
            f"{first} and {second} both hold partition {log}; move one of them away",
            name=second.name,
        )

    def _is_empty(self, path: Path) -> bool:
        fs = self.of(path).context.fs
        logs = [name for name in fs.list_directory(path) if name.endswith(names.LOG_SUFFIX)]
        return all(
            names.base_offset_of(name) == 0 and fs.size_bytes(path / name) == 0 for name in logs
        )

    def _settle_move(self, stock: Inventory, directory: DataDirectory, path: Path) -> None:
        log = parse_partition_directory(path.name).topic_partition
        moved_away = {unique_id_of(deleted.name) for deleted in stock.deleted}
        if self.offline:
            _LOG.warning("%s waits for %s to come back", path, self.offline[0].path)
        elif log in stock.live:
            if self._is_move_of(stock.live[log], directory, path) and log not in stock.moving:
                _LOG.info("%s is the beginning of a move, which is begun anew", path)
                stock.moving[log] = path
            else:
                _LOG.warning("%s is the beginning of a move to nowhere and is removed", path)
                stock.deleted.append(directory.deletion.put_away(log, path))
        elif unique_id_of(path.name) in moved_away:
            _LOG.warning("finishing the move of %s to %s", log, directory.path)
            stock.live[log] = directory.partitions.give_name(log, path)
        else:
            _LOG.warning("%s is set aside and not served: there is no original", path)

    def _is_move_of(self, original: Path, target: DataDirectory, path: Path) -> bool:
        """Whether it leads from one data directory to another, and of this very topic."""
        source = self.of(original)
        with source.health.reading, target.health.reading:
            topic_ids = {
                source.partitions.read_topic_id(original),
                target.partitions.read_topic_id(path),
            }
        return source is not target and len(topic_ids - {None}) == 1

    # -- copies --------------------------------------------------------------------------------

    def read_topics(self) -> dict[str, TopicEntry]:
        """Return what the newest topics file says. CorruptCheckpoint if none can be read."""
        copies: list[TopicsCopy] = []
        damage: list[CorruptCheckpoint] = []
        for directory in self.online:
            try:
                copies.append(directory.read_topics())
            except CorruptCheckpoint as error:
                damage.append(error)
        newest = max(copies, key=lambda copy: (copy.generation, len(copy.topics)), default=None)
        if damage and (newest is None or newest == TopicsCopy()):
            raise damage[0]
        for damaged in damage:
            _LOG.error("%s; the copy of another data directory is believed", damaged)
        self._newest = newest or TopicsCopy()
        self._are_copies_equal = not damage and all(copy == newest for copy in copies)
        return dict(self._newest.topics)

    def ensure_topics(self, entries: Mapping[str, TopicEntry]) -> None:
        """Have every copy say this."""
        if entries != self._newest.topics or not self._are_copies_equal:
            self.write_topics(entries)

    def write_topics(self, entries: Mapping[str, TopicEntry]) -> None:
        """Replace every copy, durably.

        After StorageFull or Overloaded all say what they did before.
        """
        generation = self._newest.generation + 1
        written: list[DataDirectory] = []

        def write(directory: DataDirectory) -> None:
            directory.write_topics(entries, generation)
            written.append(directory)

        try:
            self.each_online(write)
        except (Overloaded, StorageFull):
            self._newest = replace(self._newest, generation=generation + 1)
            for directory in self.online:
                # The one that failed, too: it may have failed behind the rename.
                with contextlib.suppress(Overloaded, StorageFull):
                    directory.write_topics(self._newest.topics, self._newest.generation)
            raise
        if not written:
            self.all[0].health.ensure_online()
        self._newest = TopicsCopy(generation, dict(entries))
        self._are_copies_equal = True

    def allocate_producer_id(self, logs: Iterable[Log], *, is_whole: bool) -> int:
        """Return an id that was never returned before and is above all in the logs.

        Every directory that is online has it reserved before it is returned. `is_whole` says
        whether these are all logs: others may know of higher ids.
        """
        believed = (log.producers.highest_id for log in logs)
        highest = max((one for one in believed if one < MAX_BELIEVED_PRODUCER_ID), default=-1)
        with self._allocating:
            return self._allocate_above(highest, is_whole=is_whole and not self.offline)

    def _allocate_above(self, highest_seen: int, *, is_whole: bool) -> int:
        source = self._id_source
        if source is None or source.health.is_offline:
            source = self._choose_id_source(is_whole=is_whole)
        with source.health.appending:
            source.producer_ids.raise_above(highest_seen)
            allocated = source.producer_ids.allocate()
        reserved_end = source.producer_ids.reserved_end
        for other in self.online:
            if other is not source:
                with other.health.appending:
                    other.producer_ids.reserve_through(reserved_end)
        return allocated

    def _choose_id_source(self, *, is_whole: bool) -> DataDirectory:
        highest = -1
        for directory in self.online:
            with directory.health.appending:
                highest = max(highest, directory.producer_ids.reserved_end - 1)
        if not is_whole:
            highest += UNSEEN_PRODUCER_IDS
        self.health.ensure_online()
        source = self.online[0]
        source.producer_ids.raise_above(highest)
        self._id_source = source
        return source


def _ensure_distinct(paths: Sequence[Path]) -> None:
    if not paths:
        raise InvalidDataDirectory("a data directory is needed")
    repeated = [path for path, count in Counter(p.absolute() for p in paths).items() if count > 1]
    if repeated:
        raise InvalidDataDirectory(f"{repeated[0]} is given twice", name=str(repeated[0]))
