"""All data directories of an engine: placement of partitions, copies of shared files.

A directory that fails goes offline until the next start, and the others continue; Kafka's
`LogDirFailureChannel`. Every directory has a copy of the topics file and of the reserved producer
ids. A change takes effect when every online directory has it; if copies differ, the newest wins.
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

from engine.checkpoint.tidelog_files import DirectorySet, TopicEntry, TopicsCopy
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
from engine.manager.membership import OfflineLog, decide
from engine.manager.partitions import Fill
from engine.manager.topics import Topic
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

MAX_BELIEVED_PRODUCER_ID: Final = 2**62
"""A higher id in a log was invented by a client and is ignored; otherwise ids could run out."""

UNSEEN_PRODUCER_IDS: Final = 2**32
"""How far ids jump when a directory is offline: more than are reserved between two starts."""


@dataclass(slots=True)
class Inventory:
    """The partition directories of all online data directories."""

    live: dict[TopicPartition, Path] = field(default_factory=dict)
    deleted: list[Path] = field(default_factory=list)
    moving: dict[TopicPartition, Path] = field(default_factory=dict)
    """The directories of requested moves that were not finished."""


class Directories:
    """All data directories of one engine; the first wins ties.

    All changes need the manager's admin lock.
    """

    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self.all = tuple(directories)
        _ensure_distinct([directory.path for directory in self.all])
        self._newest = TopicsCopy()
        self._are_copies_equal = True
        self._id_source: DataDirectory | None = None
        self._allocating = threading.Lock()

    # -- take and release ----------------------------------------------------------------------

    def take(self) -> None:
        """Lock every directory whose disk works, and check that none is missing.

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
            _LOG.error("%s; using the copy of another data directory", damaged)
        gone = self.all[0].context.config.gone_directories
        decided = decide(found, [one.path for one in self.offline], gone)
        for left_out in decided.left_out.values():
            _LOG.warning("%s is gone: its partitions are created again, empty", left_out)
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
        """Note that logs were opened and closed without a flush: the directories are unclean."""
        for directory in self.all:
            directory.left = replace(directory.left, was_clean=False)

    # -- look-up -------------------------------------------------------------------------------

    @property
    def online(self) -> tuple[DataDirectory, ...]:
        return tuple(one for one in self.all if not one.health.is_offline)

    @property
    def offline(self) -> tuple[DataDirectory, ...]:
        return tuple(one for one in self.all if one.health.is_offline)

    @property
    def health(self) -> DirectoryHealth:
        """The health of the first online directory; offline only if all directories are."""
        return (*self.online, self.all[0])[0].health

    def of(self, path: Path) -> DataDirectory:
        """Return the data directory of a partition directory."""
        return next(one for one in self.all if one.path == path.parent)

    def at(self, path: Path) -> DataDirectory:
        """Return the data directory at this path. InvalidRequestValue if unknown."""
        for directory in self.all:
            if directory.path.absolute() == path.absolute():
                return directory
        raise InvalidRequestValue(f"{path} is not a data directory of this log")

    def by_load(self, load: Mapping[Path, int]) -> list[DataDirectory]:
        """Return the online directories, those with the fewest partitions first."""
        return sorted(self.online, key=lambda directory: load.get(directory.path, 0))

    def make(self, topic: Topic, log: TopicPartition, load: Counter[Path]) -> Log:
        """Create a partition in the directory with the fewest; skip a directory that fails.

        `load` is the number of partitions in each directory, and is updated. Raises TopicConflict
        if the name is taken, StorageOffline or StorageFull if no directory can take it.
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
                _LOG.error("%s could not be created in %s: %s", log, directory.path, error)
                failure = failure or error
        raise failure or StorageOffline("all data directories are offline")

    def take_in(self, topic: Topic, log: TopicPartition, load: Counter[Path], fill: Fill) -> Log:
        """Create a partition in the directory with the fewest, from files that `fill` writes.

        `load` as in `make`. Raises as `Partitions.take_in`, and TopicConflict.
        """
        self.health.ensure_online()
        for directory in self.online:
            directory.partitions.ensure_free(topic, log)
        chosen = self.by_load(load)[0]
        taken = chosen.partitions.take_in(topic, log, fill)
        chosen.sync()
        load[chosen.path] += 1
        return taken

    def retire(self, log: Log) -> None:
        """Rename the directory of a deleted log; the next start does it for an offline disk."""
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
        """Write the checkpoints, and the clean-shutdown markers except in `unclean` directories.

        Raises nothing. A log that could not be opened leaves its directory unclean, because it may
        still need recovery.
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
        """Call `work` for every online directory; one whose disk fails is skipped.

        Raises StorageOffline if none is left.
        """
        for directory in self.online:
            try:
                work(directory)
            except StorageOffline as error:
                self.ensure_any_online(error)

    # -- inventory -----------------------------------------------------------------------------

    def take_stock(self) -> Inventory:
        """Return the partition directories; finish interrupted moves whose copy is complete.

        Raises InvalidDataDirectory if two directories hold the same partition.
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
        """Return the directory to serve of two with the same partition; the other is empty."""
        for empty, kept in ((second, first), (first, second)):
            if self._is_empty(empty):
                _LOG.warning("%s is empty; serving %s instead", empty, kept)
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
            _LOG.warning("%s stays unfinished while %s is offline", path, self.offline[0].path)
        elif log in stock.live:
            if self._is_move_of(stock.live[log], directory, path) and log not in stock.moving:
                _LOG.info("%s is an incomplete copy; the move starts again", path)
                stock.moving[log] = path
            else:
                _LOG.warning("removing %s, an incomplete copy without an original", path)
                stock.deleted.append(directory.deletion.put_away(log, path))
        elif unique_id_of(path.name) in moved_away:
            _LOG.warning("finishing the move of %s to %s", log, directory.path)
            stock.live[log] = directory.partitions.give_name(log, path)
        else:
            _LOG.warning("%s is kept but not served: it has no original", path)

    def _is_move_of(self, original: Path, target: DataDirectory, path: Path) -> bool:
        """Whether `path` is a move of `original`'s topic to another data directory."""
        source = self.of(original)
        with source.health.reading, target.health.reading:
            topic_ids = {
                source.partitions.read_topic_id(original),
                target.partitions.read_topic_id(path),
            }
        return source is not target and len(topic_ids - {None}) == 1

    # -- copies --------------------------------------------------------------------------------

    def read_topics(self) -> dict[str, TopicEntry]:
        """Return the topics in the newest topics file. CorruptCheckpoint if none can be read."""
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
            _LOG.error("%s; using the copy of another data directory", damaged)
        self._newest = newest or TopicsCopy()
        self._are_copies_equal = not damage and all(copy == newest for copy in copies)
        return dict(self._newest.topics)

    def ensure_topics(self, entries: Mapping[str, TopicEntry]) -> None:
        """Write the topics to every copy, unless they agree already."""
        if entries != self._newest.topics or not self._are_copies_equal:
            self.write_topics(entries)

    def write_topics(self, entries: Mapping[str, TopicEntry]) -> None:
        """Replace every copy, durably.

        After StorageFull or Overloaded every copy has its previous content.
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
                # The one that failed too, because it may have failed after the rename.
                with contextlib.suppress(Overloaded, StorageFull):
                    directory.write_topics(self._newest.topics, self._newest.generation)
            raise
        if not written:
            self.all[0].health.ensure_online()
        self._newest = TopicsCopy(generation, dict(entries))
        self._are_copies_equal = True

    def allocate_producer_id(self, logs: Iterable[Log], *, is_whole: bool) -> int:
        """Return an unused producer id, above all ids in the logs.

        Every online directory reserves it before it is returned. `is_whole` says whether `logs` are
        all logs; otherwise offline ones may have higher ids.
        """
        believed = (log.producers.highest_id for log in logs)
        highest = max((one for one in believed if one < MAX_BELIEVED_PRODUCER_ID), default=-1)
        with self._allocating:
            return self._allocate_above(highest, is_whole=is_whole and not self.offline)

    @property
    def producer_ids_end(self) -> int:
        """The exclusive end of the ids that may have been given out."""
        with self._allocating, self.health.appending:
            return max((one.producer_ids.reserved_end for one in self.online), default=0)

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
        raise InvalidDataDirectory("at least one data directory is needed")
    repeated = [path for path, count in Counter(p.absolute() for p in paths).items() if count > 1]
    if repeated:
        raise InvalidDataDirectory(f"{repeated[0]} is given twice", name=str(repeated[0]))
