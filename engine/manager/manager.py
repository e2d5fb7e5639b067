"""Manages the topics and logs of all data directories: open, create, change, delete, close.

Kafka's `LogManager`, with the parts of its controller that one node needs: the topics file and the
producer ids. Changes of topics hold the admin lock during their I/O, one at a time. They are rare,
and appends and reads never wait for that lock: topics and logs are immutable maps that changes
replace.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from engine.checkpoint.tidelog_files import TopicEntry
from engine.clock import Clock
from engine.config import EngineConfig
from engine.errors import (
    InvalidRequestValue,
    Overloaded,
    PartitionNotFound,
    PolicyViolation,
    Recovering,
    StorageError,
    StorageFull,
    StorageOffline,
    TopicConflict,
    TopicNotFound,
)
from engine.fs.health import DirectoryHealth
from engine.fs.port import FileSystem
from engine.log.damage import KnownDamage
from engine.log.files import LogContext
from engine.log.log import Log
from engine.log.maintenance import DueForRelease
from engine.log.results import DamagedPlace, LogTag
from engine.manager.checkpoints import Checkpoints
from engine.manager.directories import Directories
from engine.manager.directory import DataDirectory
from engine.manager.membership import OfflineLog
from engine.manager.moving import Move, MoveListener, WantedMoves, ignore_progress
from engine.manager.opening import (
    ProgressBoard,
    ProgressListener,
    RecoveryProgress,
    flush_and_close,
    for_each,
    let_go,
    start,
)
from engine.manager.partitions import Fill
from engine.manager.shared_rooms import SharedRooms
from engine.manager.topics import (
    Overrides,
    Topic,
    ensure_may_be_changed,
    ensure_same,
    ensure_valid_name,
    legal_config,
    merged,
    new_topic_id,
)
from engine.metrics import Recorder
from engine.scheduler import Scheduler
from engine.segment.indexes import SealedFiles
from engine.topic_keys import canonical
from engine.types import TopicPartition


class Catalog:
    """The present topics, logs and data directories."""

    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self._topics: Mapping[str, Topic] = MappingProxyType({})
        self._logs: Mapping[TopicPartition, Log] = MappingProxyType({})
        self._offline: Mapping[TopicPartition, OfflineLog] = MappingProxyType({})

    def _publish(self, topics: Mapping[str, Topic], logs: Mapping[TopicPartition, Log]) -> None:
        """Replace the maps; logs first, so that every visible topic has its logs."""
        self._logs = MappingProxyType(dict(logs))
        self._topics = MappingProxyType(dict(topics))

    @property
    def health(self) -> DirectoryHealth:
        """The health of the first online data directory; offline only if all directories are."""
        return self._directories.health

    @property
    def directories(self) -> tuple[DirectoryHealth, ...]:
        """The health of every data directory."""
        return tuple(directory.health for directory in self._directories.all)

    @property
    def checkpoints(self) -> Mapping[DirectoryHealth, Checkpoints]:
        """The checkpoints of every data directory."""
        return {directory.health: directory.checkpoints for directory in self._directories.all}

    def data_directory(self, path: Path) -> DirectoryHealth:
        """Return the health of the data directory at this path; InvalidRequestValue if unknown."""
        return self._directories.at(path).health

    def topics(self) -> Mapping[str, Topic]:
        """Return an immutable snapshot of all topics by name, internal ones included."""
        return self._topics

    def topic(self, name: str) -> Topic:
        """Return one topic; TopicNotFound."""
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name!r} does not exist", topic=name)
        return topic

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return one log; TopicNotFound or PartitionNotFound.

        LogOffline if it could not be opened, StorageOffline if it may be in an offline directory.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            topic = self.topic(topic_partition.topic)
            if topic_partition in self._offline:
                raise self._offline[topic_partition].refusal()
            if self._directories.offline and 0 <= topic_partition.partition < topic.partitions:
                directory = self._directories.offline[0]
                raise StorageOffline(
                    f"{topic_partition}: {directory.health.offline_error()}",
                    directory=str(directory.path),
                )
            raise PartitionNotFound(
                f"topic {topic.name!r} has no partition {topic_partition.partition}",
                topic=topic.name,
                partition=topic_partition.partition,
                partitions=topic.partitions,
            )
        return log

    @property
    def logs_by_partition(self) -> Mapping[TopicPartition, Log]:
        """An immutable snapshot of the open logs."""
        return self._logs

    @property
    def offline_logs(self) -> tuple[OfflineLog, ...]:
        """The logs that could not be opened at the last start and still belong to a topic."""
        return tuple(one for _, one in sorted(self._offline.items()))

    def offline_partitions(self) -> list[TopicPartition]:
        """Return the partitions of known topics that take no appends; empty if all do.

        Those that could not be opened, also because their data directory could not, and those whose
        data directory has failed since. An adopted directory may have only some of a topic's.
        """
        if not self._offline and not self._directories.offline:
            return []
        return [
            one
            for topic in self._topics.values()
            for one in (TopicPartition(topic.name, number) for number in range(topic.partitions))
            if self._is_offline(one)
        ]

    def _is_offline(self, one: TopicPartition) -> bool:
        log = self._logs.get(one)
        if log is not None:
            return log.durability.health.is_offline
        return one in self._offline or bool(self._directories.offline)

    @property
    def damage(self) -> list[DamagedPlace]:
        """The damaged places that are known, by data directory, log and place."""
        return [place for one in self._directories.all for place in one.context.damage.places]

    def review_damage(self) -> None:
        """Look at each known place again, forget those that are whole or gone, and write the rest.

        Reads a batch for each; a log that cannot be looked at keeps its places.
        """
        for directory in self._directories.online:
            directory.context.damage.review(self._is_damaged)

    def _is_damaged(self, place: DamagedPlace) -> bool:
        log = self._logs.get(place.log)
        if log is None:
            return place.topic in self._topics and self._is_offline(place.log)
        try:
            return log.reader.is_damaged(place)
        except StorageError:
            return True

    def _keep_offline(self, offline: Mapping[TopicPartition, OfflineLog]) -> None:
        """Record which logs are offline; their lines in the checkpoints are kept."""
        self._offline = MappingProxyType(dict(offline))
        for directory in self._directories.all:
            directory.checkpoints.keep(
                log for log, one in offline.items() if one.directory.parent == directory.path
            )

    def logs(self) -> tuple[Log, ...]:
        """Return all present logs, those of internal topics included."""
        return tuple(self._logs.values())

    def logs_of(self, topic: str) -> list[Log]:
        """Return the open logs of one topic."""
        return [log for key, log in self._logs.items() if key.topic == topic]


_LOG = logging.getLogger(__name__)


class LogManager(Catalog):
    """All logs of one or several data directories. Thread-safe; `open` once, `close` once."""

    def __init__(
        self,
        data_directories: Path | Sequence[Path],
        *,
        fs: FileSystem,
        clock: Clock,
        scheduler: Scheduler,
        recorder: Recorder,
        config: EngineConfig,
    ) -> None:
        self._config = config
        paths = [data_directories] if isinstance(data_directories, Path) else data_directories
        sealed = SealedFiles(config.max_open_sealed_segments)
        self._rooms = rooms = SharedRooms(config, scheduler, self.logs)
        healths = [DirectoryHealth(path, recorder) for path in paths]
        ports = (fs, clock, scheduler, recorder)
        contexts = [
            LogContext(
                *ports,
                health,
                config,
                sealed,
                KnownDamage(fs, health.directory, clock),
                rooms.sealed,
                rooms.producers,
            )
            for health in healths
        ]
        super().__init__(Directories([*map(DataDirectory, contexts)]))
        self._board = ProgressBoard()
        self._stopping = threading.Event()
        self._moving = threading.Lock()
        self._moves = WantedMoves()
        self._under_way: TopicPartition | None = None
        self._admin = threading.Lock()
        self._deleted: Mapping[str, TopicEntry] = MappingProxyType({})
        self._arriving: set[str] = set()
        """The names of topics that are being restored; changed under the admin lock."""
        self._is_open = False

    # -- open and close ----------------------------------------------------------------------

    def open(self, progress: ProgressListener | None = None) -> None:
        """Lock the data directories; open, repair and flush every log in them.

        `progress` is called on the threads that open logs. A directory whose disk fails is skipped
        if there is another one. If anything else fails, all logs are closed and the directories are
        released. Raises DirectoryLocked, InvalidDataDirectory, InconsistentTopicId,
        CorruptCheckpoint for a damaged topics file, StorageError.
        """
        with self._admin:
            self._stopping.clear()
            try:
                self._directories.take()
                while not self._is_open:
                    self._board = ProgressBoard(progress)
                    self._is_open = self._try_open()
            except BaseException:
                let_go(self.logs())
                self._directories.release()
                raise

    def _try_open(self) -> bool:
        """Open the logs in the online directories; False if one of the directories failed."""
        online = self._directories.online
        try:
            self._open()
        except StorageOffline as error:
            assert online != self._directories.online, "a failed directory goes offline"
            self._directories.ensure_any_online(error)
            let_go(self.logs())
            self._publish({}, {})
            self._keep_offline({})
            self._directories.distrust()
            return False
        return True

    def _open(self) -> None:
        if self._stopping.is_set():
            self._board.stop()
        started = start(self._directories, threads=self._config.recovery_threads, board=self._board)
        defaults = self._config.default_topic_config
        topics = {name: topic.under(defaults) for name, topic in started.topics.items()}
        self._keep_offline(started.offline)
        self._publish(topics, started.logs)
        self._rooms.count()
        self._deleted = started.deleted
        self._moves.adopt(started.moves)
        self.checkpoint()
        # After the checkpoints: while a deleted topic is recorded, its stale lines do no harm.
        self._directories.ensure_topics(self._entries(topics))
        for path in started.leftovers:
            self._directories.of(path).deletion.remove_later(path)

    def interrupt(self) -> None:
        """Make an `open` or a move on another thread end soon, with Recovering."""
        self._stopping.set()
        self._board.stop()

    def close(self) -> None:
        """Flush and close every log, write the checkpoints and, if all went well, the marker.

        Raises nothing: without the marker, which each directory has, the next start recovers what
        could not be written. May be called again.
        """
        self._stopping.set()
        with self._moving, self._admin:
            if not self._is_open:
                return
            self._is_open = False
            failures = for_each(self.logs(), flush_and_close, threads=self._config.recovery_threads)
            for log, error in failures:
                _LOG.error("%s was not closed cleanly: %s", log.topic_partition, error)
                log.maintenance.close_handles()
            for directory in self._directories.online:
                directory.context.damage.save()
            unclean = {log.directory.parent for log, _ in failures}
            self._directories.leave_clean(self.logs, unclean)
            self._directories.release()

    def checkpoint(self) -> None:
        """Write recovery points, log starts and high watermarks of all logs. StorageError."""
        self._directories.each_online(lambda directory: directory.write_checkpoints(self.logs))

    @property
    def recovery_progress(self) -> RecoveryProgress:
        """The progress of `open`, or its state when it ended."""
        return self._board.latest

    # -- changes -----------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, overrides: Overrides, *, internal: bool = False
    ) -> tuple[Topic, bool]:
        """Return the topic and whether it was created; an existing topic must be the same.

        The topics file is written first: after a crash the next start creates missing partitions.
        Names that are reserved for a broker's internal topics need `internal`. Raises
        InvalidTopicName, InvalidConfig, InvalidRequestValue, PolicyViolation, TopicConflict,
        StorageError.
        """
        ensure_valid_name(name, internal=internal)
        wanted = Topic(name, new_topic_id(), partitions, canonical(overrides))
        wanted = wanted.under(self._config.default_topic_config)
        legal_config(wanted, self._config)
        with self._admin:
            self._ensure_open()
            existing = self._topics.get(name)
            if existing is not None:
                same = ensure_same(existing, wanted)
                self._directories.ensure_topics(self._entries(self._topics))  # as `update_topic`
                return same, False
            self._make_room_for(name)
            self._grow(wanted, range(partitions))
            return wanted, True

    def restore_topic(
        self,
        name: str,
        partitions: int,
        overrides: Overrides,
        fill: Fill,
        *,
        was_compacted: bool,
    ) -> Topic:
        """Create a topic whose partitions `fill` writes, one after the other; return it.

        It may take long, and no lock is held meanwhile. Until all its logs are open, the topics
        file has it as deleted: after a failure, and at a start after a crash, nothing of it stays.
        Raises TopicConflict if the name is taken, what `create_topic` raises, and what `fill` does.
        """
        ensure_valid_name(name)
        topic = Topic(
            name, new_topic_id(), partitions, canonical(overrides), was_compacted=was_compacted
        ).under(self._config.default_topic_config)
        legal_config(topic, self._config, topic)  # sizes that were legal once stay so
        with self._admin:
            self._ensure_open()
            if name in self._topics:
                raise TopicConflict(f"topic {name!r} exists; choose another name", topic=name)
            self._make_room_for(name)
            tombstones = {**self._deleted, name: replace(topic.entry, deleted=True)}
            self._directories.write_topics({**self._entries(self._topics), **tombstones})
            self._deleted = tombstones
            self._arriving.add(name)
        load = Counter(log.durability.health.directory for log in self.logs())
        made: dict[TopicPartition, Log] = {}
        try:
            for number in range(partitions):
                log = TopicPartition(name, number)
                made[log] = self._directories.take_in(topic, log, load, fill)
            with self._admin:
                self._ensure_open()
                logs = {**self._logs, **made}
                # Where the restored logs start is written nowhere else.
                self._directories.each_online(lambda one: one.write_checkpoints(logs.values))
                kept = {other: entry for other, entry in self._deleted.items() if other != name}
                topics = {**self._topics, name: topic}
                self._directories.write_topics({**kept, **_entries_of(topics)})
                self._deleted = kept
                self._publish(topics, logs)
        except BaseException:
            with self._admin, contextlib.suppress(Overloaded, StorageError, TopicConflict):
                self._unmake(made)
                self._forget(name)  # or else the next start does
            raise
        finally:
            self._arriving.discard(name)
        return topic

    def update_topic(
        self,
        name: str,
        changes: Overrides | None = None,
        partitions: int | None = None,
        *,
        internal: bool = False,
    ) -> Topic:
        """Change a topic's configuration, number of partitions, or both; return the topic.

        None resets a key to its default. The change is durable before it takes effect. Raises
        TopicNotFound, InvalidConfig, InvalidRequestValue for fewer partitions, PolicyViolation for
        an internal topic without `internal`, StorageError.
        """
        with self._admin:
            self._ensure_open()
            before = self.topic(name)
            ensure_may_be_changed(before, internal=internal)
            after = replace(
                before.with_partitions(before.partitions if partitions is None else partitions),
                overrides=merged(before.overrides, changes or {}),
                was_compacted=before.entry.compacted,
            ).under(self._config.default_topic_config)
            if after.partitions < before.partitions:
                raise InvalidRequestValue(
                    f"topic {name!r} has {before.partitions} partitions and cannot have fewer",
                    topic=name,
                    partitions=before.partitions,
                )
            config = legal_config(after, self._config, before)
            logs = self.logs_of(name)
            if not config.remote_storage_enable:
                _ensure_on_disk(logs)
            if after != before:
                if after.was_compacted and not before.was_compacted:
                    for log in logs:
                        log.maintenance.keep_order()
                self._grow(after, range(before.partitions, after.partitions))
                for log in logs:
                    log.maintenance.update_config(config)
            else:
                # An earlier change that was refused may have found no space to be undone on disk.
                self._directories.ensure_topics(self._entries(self._topics))
            return after

    def delete_topic(self, name: str) -> None:
        """Delete a topic: look-ups fail at once, its files are removed later.

        First the topics file marks the deletion, then directories are renamed and their checkpoint
        lines removed, then the topic is removed from the topics file. The next start finishes it
        after a crash. If space is lacking, the last two steps are done when a topic of that name is
        created. Raises TopicNotFound, PolicyViolation for an internal topic, StorageError.
        """
        with self._admin:
            self._ensure_open()
            topic = self.topic(name)
            ensure_may_be_changed(topic)
            remaining = {other: kept for other, kept in self._topics.items() if other != name}
            deleted = {**self._deleted, name: replace(topic.entry, deleted=True)}
            self._directories.write_topics({**self._entries(remaining), **deleted})
            self._deleted = deleted
            leaving = self.logs_of(name)
            gone = {log.topic_partition for log in leaving}
            self._moves.give_up(gone - {self._under_way})  # a running move notices by itself
            logs = {key: log for key, log in self._logs.items() if key not in gone}
            self._publish(remaining, logs)
            for log in leaving:
                self._directories.retire(log)
            offline = {log: one for log, one in self._offline.items() if log.topic == name}
            self._directories.put_away(offline.values())
            self._keep_offline(
                {log: one for log, one in self._offline.items() if log not in offline}
            )
            self._directories.each_online(lambda directory: directory.sync())
            try:
                self._forget(name)
            except (Overloaded, StorageFull, TopicConflict) as error:
                _LOG.warning("topic %s is deleted; its entry is removed later: %s", name, error)

    def _forget(self, name: str) -> None:
        """Remove the records of a deleted topic; TopicConflict if a partition may still exist.

        Its checkpoint lines are removed first, because a new topic of that name would use them.
        """
        self.checkpoint()
        if self._directories.offline:
            raise TopicConflict(
                f"the deleted topic {name!r} may still have partitions in a data directory that is "
                "offline; they are removed when it is online again",
                topic=name,
            )
        entries = self._entries(self._topics)
        del entries[name]
        self._directories.write_topics(entries)
        self._deleted = {key: entry for key, entry in self._deleted.items() if key != name}

    def truncate(self, log: Log, offset: int, *, expected_tag: LogTag | None = None) -> int:
        """Truncate a log as `Log.truncate_to`, with no checkpoint ever above its end."""
        with self._admin:
            self._ensure_open()
            directory = self._directories.of(log.directory)
            return directory.truncate(self.logs, log, offset, expected_tag)

    def delete_records(self, log: Log, before_offset: int) -> int:
        """Raise the log start durably, as `Log.delete_records`; return the log start."""
        with self._admin:
            self._ensure_open()
            directory = self._directories.of(log.directory)
            return directory.delete_records(self.logs, log, before_offset)

    def release(self, log: Log, due: DueForRelease) -> bool:
        """Remove segments from the disk that the archive has, as `Maintenance.release`."""
        with self._admin:
            self._ensure_open()
            directory = self._directories.of(log.directory)
            return directory.release_segments(self.logs, log, due)

    def plan_move(self, topic_partition: TopicPartition, target: Path) -> None:
        """Record durably that a partition is to be moved to another data directory.

        From then on `unfinished_moves` returns it, after a restart too, until `move_partition`
        ends. Raises TopicNotFound, PartitionNotFound, InvalidRequestValue for `target`,
        StorageError.
        """
        directory = self._directories.at(target)
        with self._admin:
            self._ensure_open()
            self._want_move(self.log(topic_partition), directory)

    def _want_move(self, log: Log, directory: DataDirectory) -> Path:
        directory.health.ensure_online()
        topic = self.topic(log.topic_partition.topic)
        return self._moves.want(topic, log.topic_partition, directory)

    def unfinished_moves(self) -> Mapping[TopicPartition, Path]:
        """Return the partitions with an unfinished move, and their target directories."""
        with self._admin:
            return self._moves.targets()

    def move_partition(
        self,
        topic_partition: TopicPartition,
        target: Path,
        *,
        progress: MoveListener = ignore_progress,
    ) -> None:
        """Move a partition to another data directory, during appends and reads.

        One move at a time; `progress` is called after each chunk. After a crash the next start
        serves one complete copy. Raises TopicNotFound, PartitionNotFound, InvalidRequestValue for
        `target`, StorageError; if the log is closed meanwhile Recovering, and the next start has it
        as an unfinished move.
        """
        directory = self._directories.at(target)
        with self._moving:
            with self._admin:
                self._ensure_open()
                log = self.log(topic_partition)
                source = self._directories.of(log.directory)
                if source is directory:
                    return
                path = self._want_move(log, directory)
                self._under_way = topic_partition
            topic = self.topic(topic_partition.topic)
            move = Move(
                log, topic, source, directory, path=path, logs=self.logs, stopping=self._stopping
            )
            try:
                with move:
                    self._move(move, log, (source, directory), progress)
            finally:
                with self._admin:
                    self._under_way = None
                    self._moves.end(topic_partition)

    def _move(
        self, move: Move, log: Log, between: tuple[DataDirectory, ...], progress: MoveListener
    ) -> None:
        move.copy(progress)
        with self._admin:
            self._ensure_open()
            if self._logs.get(log.topic_partition) is not log:
                raise TopicNotFound(f"{log.topic_partition} was deleted while it was moved")
            move.finish()
            for directory in between:
                directory.try_to_write_checkpoints(self.logs)

    @property
    def producer_ids_end(self) -> int:
        """The exclusive end of the producer ids that may have been given out. StorageError."""
        return self._directories.producer_ids_end

    def allocate_producer(self) -> tuple[int, int]:
        """Return an unused producer id, above all ids in the logs, and epoch 0.

        A crash may waste ids, but never repeats one. Raises StorageOffline.
        """
        is_whole = not self._offline
        return self._directories.allocate_producer_id(self.logs(), is_whole=is_whole), 0

    # -- private steps, all under the admin lock -----------------------------------------------

    def _ensure_open(self) -> None:
        if not self._is_open:
            raise Recovering("the data directory is not open")

    def _make_room_for(self, name: str) -> None:
        if name in self._arriving:
            raise TopicConflict(f"topic {name!r} is being restored", topic=name)
        if name in self._deleted:
            self._forget(name)
        limit = self._config.max_topics
        if len(self._topics) >= limit:
            reached = f"the limit of {limit} topics is reached"
            raise PolicyViolation(reached, topic=name, limit="max_topics")

    def _grow(self, topic: Topic, numbers: range) -> None:
        """Record the topic, create its partitions with these numbers, then publish it.

        If space or open files are lacking, all of it is undone. After any other failure the
        directory is offline, and the next start completes what the topics file records.
        """
        self._directories.write_topics({**self._entries(self._topics), topic.name: topic.entry})
        load = Counter(log.durability.health.directory for log in self.logs())
        made: dict[TopicPartition, Log] = {}
        try:
            for number in numbers:
                log = TopicPartition(topic.name, number)
                made[log] = self._directories.make(topic, log, load)
            for path in sorted({log.directory.parent for log in made.values()}):
                self._directories.at(path).sync()
        except (Overloaded, StorageFull, StorageOffline, TopicConflict):
            if self._directories.online:
                self._unmake(made)
                if self._directories.offline and topic.name not in self._topics:
                    # Its partitions must not be adopted as a topic when the directory is back.
                    tombstone = replace(topic.entry, deleted=True)
                    self._deleted = {**self._deleted, topic.name: tombstone}
                self._directories.write_topics(self._entries(self._topics))
            raise
        self._publish({**self._topics, topic.name: topic}, {**self._logs, **made})

    def _unmake(self, made: Mapping[TopicPartition, Log]) -> None:
        let_go(tuple(made.values()))
        for opened in made.values():
            directory = self._directories.of(opened.directory)
            if not directory.health.is_offline:
                directory.deletion.discard(opened.directory)

    def _entries(self, topics: Mapping[str, Topic]) -> dict[str, TopicEntry]:
        """Return the content of the topics file, with deleted topics of offline directories."""
        return {**self._deleted, **_entries_of(topics)}


def _entries_of(topics: Mapping[str, Topic]) -> dict[str, TopicEntry]:
    return {name: topic.entry for name, topic in topics.items()}


def _ensure_on_disk(logs: Iterable[Log]) -> None:
    """Raise PolicyViolation if the archive has records that the disk does not have."""
    for log in logs:
        start, local = log.watermarks.log_start_offset, log.reader.local_log_start_offset
        if start < local:
            raise PolicyViolation(
                f"the records of {log.topic_partition} from {start} to {local - 1} are in the "
                "archive only: remote.storage.enable must stay true until they are deleted (delete "
                f"the records before {local}) or retention has removed them",
                name="remote.storage.enable",
                log_start_offset=start,
                local_log_start_offset=local,
            )
