"""The data directory as a whole: which topics there are, their logs, their coming and going.

Kafka's `LogManager`, with the little of its controller that one node needs: the topics file and the
producer ids. Look-ups read immutable maps that changes replace, and take no lock. Changes of topics
take the admin lock and hold it across their IO, one at a time; they are rare, and appends and reads
never wait for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from engine.checkpoint.producer_ids import ProducerIds
from engine.checkpoint.topics_file import TopicEntry
from engine.clock import Clock
from engine.config import EngineConfig, LogConfig
from engine.errors import (
    InvalidRequestValue,
    PartitionNotFound,
    PolicyViolation,
    Recovering,
    StorageError,
    StorageFull,
    TopicConflict,
    TopicNotFound,
)
from engine.fs.health import DirectoryHealth
from engine.fs.port import FileSystem
from engine.log.context import LogContext
from engine.log.log import Log
from engine.manager.deletion import Deletion
from engine.manager.directory import DataDirectory
from engine.manager.opening import (
    OpenJob,
    ProgressBoard,
    ProgressListener,
    RecoveryProgress,
    for_each,
    let_go,
    open_all,
)
from engine.manager.partitions import LeftState, Partitions
from engine.manager.topics import (
    Topic,
    ensure_may_be_changed,
    ensure_valid_name,
    new_topic_id,
    reconcile,
)
from engine.metrics import Recorder
from engine.scheduler import Scheduler
from engine.topic_keys import TOPIC_KEYS, ConfigValue, canonical
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

FIRST_PRODUCER_EPOCH: Final = 0

MAX_BELIEVED_PRODUCER_ID: Final = 2**62
"""An id above this in a log was made up by a client: ids that exceed it would run out."""


class LogManager:
    """All logs of one data directory. Thread-safe; `open` once, `close` once."""

    def __init__(
        self,
        data_directory: Path,
        *,
        fs: FileSystem,
        clock: Clock,
        scheduler: Scheduler,
        recorder: Recorder,
        config: EngineConfig,
    ) -> None:
        self.health = DirectoryHealth(data_directory, recorder)
        self._config = config
        self._directory = DataDirectory(fs, data_directory, self.health)
        context = LogContext(fs, clock, scheduler, recorder, self.health, config)
        self._partitions = Partitions(context, data_directory)
        defaults = LogConfig.of(config.default_topic_config)
        self._deletion = Deletion(context, delay_ms=defaults.file_delete_delay_ms)
        self._producer_ids = ProducerIds(fs, data_directory)
        self._board = ProgressBoard()
        self._admin = threading.Lock()
        self._topics: Mapping[str, Topic] = MappingProxyType({})
        self._logs: Mapping[TopicPartition, Log] = MappingProxyType({})
        self._is_open = False

    # -- life --------------------------------------------------------------------------------

    def open(self, progress: ProgressListener | None = None) -> None:
        """Own the data directory and open every log in it, repaired and flushed.

        `progress` is told how far it is, on the threads that open logs. If anything fails, nothing
        stays open and the directory is let go of. Raises DirectoryLocked, InvalidDataDirectory,
        InconsistentTopicId, CorruptCheckpoint for a damaged topics file, StorageError.
        """
        with self._admin:
            self._board = ProgressBoard(progress)
            try:
                self._open(self._directory.take())
            except BaseException:
                let_go(self.logs())
                self._directory.release()
                raise
            self._is_open = True

    def _open(self, left: LeftState) -> None:
        contents = self._directory.contents()
        recorded = self._directory.read_topics()
        topic_ids = {
            log: self._partitions.read_topic_id(path) for log, path in contents.live.items()
        }
        plan = reconcile(recorded, topic_ids)
        for log in plan.leftovers:
            contents.deleted.append(self._deletion.put_away(log, contents.live.pop(log)))
        for log in plan.unmarked:
            path = contents.live.setdefault(log, self._partitions.path_of(log))
            self._partitions.make_directory(plan.topics[log.topic], path)
        self._directory.sync()
        jobs = [OpenJob(log, path) for log, path in sorted(contents.live.items())]
        opened = open_all(
            jobs,
            lambda job: self._partitions.open(
                plan.topics[job.log.topic], job.log, job.directory, left
            ),
            threads=self._config.recovery_threads,
            board=self._board,
        )
        self._publish(plan.topics, {log.topic_partition: log for log in opened})
        self._directory.write_checkpoints(self.logs)
        # Behind the checkpoints: while a deleted topic is recorded, its stale lines do no harm.
        entries = {name: topic.entry for name, topic in plan.topics.items()}
        if entries != recorded:
            self._directory.write_topics(entries)
        for path in contents.deleted:
            self._deletion.remove_later(path)

    def interrupt(self) -> None:
        """Have an `open` that is under way on another thread give up soon, with Recovering."""
        self._board.stop()

    def close(self) -> None:
        """Flush and close every log, write the checkpoints and, if all went well, the marker.

        Nothing raises: what could not be written is recovered at the next start, which the missing
        marker announces. May be repeated.
        """
        with self._admin:
            if not self._is_open:
                return
            self._is_open = False
            failures = for_each(
                self.logs(), _flush_and_close, threads=self._config.recovery_threads
            )
            for log, error in failures:
                _LOG.error("%s was not closed cleanly: %s", log.topic_partition, error)
                log.close_handles()
            try:
                if not failures:
                    self._directory.write_checkpoints(self.logs)
                    self._directory.mark_clean()
            except StorageError:
                _LOG.exception("the next start will recover all logs")
            finally:
                self._directory.release()

    def checkpoint(self) -> None:
        """Write recovery points, log starts and high watermarks of all logs. StorageOffline."""
        self._directory.write_checkpoints(self.logs)

    # -- look-ups ----------------------------------------------------------------------------

    @property
    def recovery_progress(self) -> RecoveryProgress:
        """How far `open` is, or was when it ended."""
        return self._board.latest

    def topics(self) -> Mapping[str, Topic]:
        """Return all topics by name, internal ones too: an immutable picture of the moment."""
        return self._topics

    def topic(self, name: str) -> Topic:
        """Return one topic; TopicNotFound."""
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name!r}", topic=name)
        return topic

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return one log; TopicNotFound or PartitionNotFound."""
        log = self._logs.get(topic_partition)
        if log is None:
            topic = self.topic(topic_partition.topic)
            raise PartitionNotFound(
                f"topic {topic.name!r} has no partition {topic_partition.partition} here",
                topic=topic.name,
                partition=topic_partition.partition,
                partitions=topic.partitions,
            )
        return log

    def logs(self) -> tuple[Log, ...]:
        """Return all logs of the moment, those of internal topics too."""
        return tuple(self._logs.values())

    # -- changes -----------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, overrides: Mapping[str, ConfigValue]
    ) -> tuple[Topic, bool]:
        """Return the topic and whether it was made now; one that exists must be the same.

        The topics file comes first: a crash behind it leaves a topic whose missing partitions the
        next start makes. Raises InvalidTopicName, InvalidConfig, InvalidRequestValue,
        PolicyViolation, TopicConflict, StorageError.
        """
        ensure_valid_name(name)
        wanted = Topic(name, new_topic_id(), partitions, canonical(overrides))
        self._ensure_legal(wanted)
        with self._admin:
            self._ensure_open()
            existing = self._topics.get(name)
            if existing is not None:
                return _ensure_same(existing, wanted), False
            if len(self._topics) >= self._config.max_topics:
                raise PolicyViolation(
                    f"there are {self._config.max_topics} topics already, which is the limit",
                    topic=name,
                    limit="max_topics",
                )
            self._grow(wanted, range(partitions))
            return wanted, True

    def update_topic(
        self,
        name: str,
        changes: Mapping[str, ConfigValue] | None = None,
        partitions: int | None = None,
    ) -> Topic:
        """Change a topic's configuration, its number of partitions, or both; return the topic.

        A change to None takes the key back to its default. Durable before it is in force. Raises
        TopicNotFound, InvalidConfig, InvalidRequestValue for fewer partitions, PolicyViolation for
        an internal topic, StorageError.
        """
        with self._admin:
            self._ensure_open()
            before = self.topic(name)
            ensure_may_be_changed(before)
            after = replace(
                before,
                overrides=_merged(before.overrides, changes or {}),
                partitions=before.partitions if partitions is None else partitions,
            )
            if after.partitions < before.partitions:
                raise InvalidRequestValue(
                    f"topic {name!r} has {before.partitions} partitions and cannot have fewer",
                    topic=name,
                    partitions=before.partitions,
                )
            config = self._ensure_legal(after)
            if after != before:
                self._grow(after, range(before.partitions, after.partitions))
                for log in self.logs():
                    if log.topic_partition.topic == name:
                        log.update_config(config)
            return after

    def delete_topic(self, name: str) -> None:
        """Delete a topic: gone for look-ups at once, its files later.

        First the topics file says so, then directories are renamed and checkpoints forget them,
        then the topics file forgets the topic: a crash in between is finished by the next start.
        Raises TopicNotFound, PolicyViolation for an internal topic, StorageError.
        """
        with self._admin:
            self._ensure_open()
            topic = self.topic(name)
            ensure_may_be_changed(topic)
            remaining = {other: kept for other, kept in self._topics.items() if other != name}
            entries = _entries(remaining)
            self._directory.write_topics({**entries, name: replace(topic.entry, deleted=True)})
            leaving = [log for log in self.logs() if log.topic_partition.topic == name]
            gone = {log.topic_partition for log in leaving}
            logs = {key: log for key, log in self._logs.items() if key not in gone}
            self._publish(remaining, logs)
            for log in leaving:
                self._deletion.retire(log)
            self._directory.sync()
            self._directory.write_checkpoints(self.logs)
            self._directory.write_topics(entries)

    def allocate_producer(self) -> tuple[int, int]:
        """Return a producer id that was never given out and is above all in the logs, and epoch 0.

        Durable: a crash wastes ids and repeats none. Raises StorageOffline.
        """
        believed = (log.highest_producer_id for log in self.logs())
        highest = max((one for one in believed if one < MAX_BELIEVED_PRODUCER_ID), default=-1)
        with self.health.appending():
            self._producer_ids.raise_above(highest)
            return self._producer_ids.allocate(), FIRST_PRODUCER_EPOCH

    # -- private steps, all under the admin lock -----------------------------------------------

    def _ensure_open(self) -> None:
        if not self._is_open:
            raise Recovering("the data directory is not open")

    def _ensure_legal(self, topic: Topic) -> LogConfig:
        """Return what the topic's logs would work with; raise if the topic may not be like that."""
        limit = self._config.max_partitions_per_topic
        if not 1 <= topic.partitions <= limit:
            raise InvalidRequestValue(
                f"a topic has 1 to {limit} partitions, not {topic.partitions}",
                limit="max_partitions_per_topic",
                partitions=topic.partitions,
            )
        return topic.log_config(self._config.default_topic_config)

    def _grow(self, topic: Topic, numbers: range) -> None:
        """Record the topic, make its partitions of these numbers, then show it to everybody.

        A full disk undoes it. After any other failure the directory is offline, and the next start
        completes what the topics file says.
        """
        before = _entries(self._topics)
        self._directory.write_topics({**before, topic.name: topic.entry})
        made: dict[TopicPartition, Log] = {}
        try:
            for number in numbers:
                log = TopicPartition(topic.name, number)
                made[log] = self._partitions.make(topic, log)
            self._directory.sync()
        except (StorageFull, TopicConflict):
            let_go(tuple(made.values()))
            for log in made:
                self._partitions.unmake(log)
            self._directory.write_topics(before)
            raise
        self._publish({**self._topics, topic.name: topic}, {**self._logs, **made})

    def _publish(self, topics: Mapping[str, Topic], logs: Mapping[TopicPartition, Log]) -> None:
        """Replace the maps; logs first, so that a topic that is seen has its logs."""
        self._logs = MappingProxyType(dict(logs))
        self._topics = MappingProxyType(dict(topics))


def _entries(topics: Mapping[str, Topic]) -> dict[str, TopicEntry]:
    return {name: topic.entry for name, topic in topics.items()}


def _merged(overrides: Mapping[str, str], changes: Mapping[str, ConfigValue]) -> dict[str, str]:
    """Apply a merge patch (RFC 7396): None removes a key, but not one that never existed."""
    merged: dict[str, ConfigValue] = {**overrides, **changes}
    known_and_removed = {name for name in merged if merged[name] is None and name in TOPIC_KEYS}
    return canonical({name: merged[name] for name in merged if name not in known_and_removed})


def _ensure_same(existing: Topic, wanted: Topic) -> Topic:
    if existing.partitions == wanted.partitions and existing.overrides == wanted.overrides:
        return existing
    raise TopicConflict(
        f"topic {existing.name!r} exists with {existing.partitions} partitions and "
        f"configuration {dict(existing.overrides)}",
        topic=existing.name,
        partitions=existing.partitions,
        config=dict(existing.overrides),
    )


def _flush_and_close(log: Log) -> None:
    if log.has_uncommitted or log.recovery_point < log.watermarks.log_end_offset:
        log.flush()
    log.close()
