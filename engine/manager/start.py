"""Startup: repairs the data directories, then opens every log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoint.topics_file import TopicEntry
from engine.errors import InvalidDataDirectory
from engine.log.log import Log
from engine.manager.directories import Directories
from engine.manager.directory import DataDirectory
from engine.manager.offline import OfflineLog
from engine.manager.opening import OpenJob, ProgressBoard, open_all
from engine.manager.topics import Topic, reconcile
from engine.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Started:
    """The topics, logs and leftovers of a start."""

    topics: Mapping[str, Topic]
    logs: Mapping[TopicPartition, Log]
    offline: Mapping[TopicPartition, OfflineLog]
    """Logs that could not be opened."""
    deleted: Mapping[str, TopicEntry]
    """Deleted topics that may still have partitions in an offline directory."""
    leftovers: tuple[Path, ...]
    """Directories to remove later; none while one of them may belong to an unfinished move."""
    moves: Mapping[TopicPartition, tuple[DataDirectory, Path]]
    """The unfinished moves: target data directory, and directory of the copy."""


def start(directories: Directories, *, threads: int, board: ProgressBoard) -> Started:
    """Return the topics and their open logs.

    While a directory is offline, nothing is created or removed that it may also have.
    """
    is_whole = not directories.offline
    stock = directories.take_stock()
    recorded = directories.read_topics()
    # First of all: a directory with a partition whose topic is missing in its file would adopt it.
    directories.ensure_topics(recorded)
    topic_ids, offline = _read_topic_ids(directories, stock.live)
    plan = reconcile(recorded, topic_ids)
    for log in plan.leftovers:
        path = stock.live.pop(log)
        stock.deleted.append(directories.of(path).deletion.put_away(log, path))
        if log in stock.moving:
            path = stock.moving.pop(log)
            stock.deleted.append(directories.of(path).deletion.put_away(log, path))
    unmarked = [log for log in plan.unmarked if log not in offline]
    _make_unmarked(directories, plan.topics, unmarked, stock.live, is_whole=is_whole)
    for directory in directories.online:
        directory.sync()  # the names that were changed or created above

    def open_one(job: OpenJob) -> Log:
        directory = directories.of(job.directory)
        topic = plan.topics[job.log.topic]
        return directory.partitions.open(topic, job.log, job.directory, directory.left)

    jobs = [OpenJob(log, path) for log, path in sorted(stock.live.items()) if log not in offline]
    opened, unopened = open_all(jobs, open_one, threads=threads, board=board)
    offline |= {one.topic_partition: one for one in unopened}
    deleted = {
        name: entry
        for name, entry in recorded.items()
        if entry.deleted and name not in plan.topics and not is_whole
    }
    logs = {log.topic_partition: log for log in opened}
    moves = {log: (directories.of(path), path) for log, path in stock.moving.items()}
    leftovers = tuple(stock.deleted) if is_whole else ()
    return Started(plan.topics, logs, offline, deleted, leftovers, moves)


def _read_topic_ids(
    directories: Directories, live: Mapping[TopicPartition, Path]
) -> tuple[dict[TopicPartition, str | None], dict[TopicPartition, OfflineLog]]:
    """Return the topic id of each partition, and the partitions whose id cannot be read."""
    topic_ids: dict[TopicPartition, str | None] = {}
    offline: dict[TopicPartition, OfflineLog] = {}
    for log, path in live.items():
        try:
            topic_ids[log] = directories.of(path).partitions.read_topic_id(path)
        except (OSError, InvalidDataDirectory) as error:
            topic_ids[log] = None
            offline[log] = OfflineLog.of(log, path, error)
    return topic_ids, offline


def _make_unmarked(
    directories: Directories,
    topics: Mapping[str, Topic],
    unmarked: Iterable[TopicPartition],
    live: dict[TopicPartition, Path],
    *,
    is_whole: bool,
) -> None:
    """Complete the partitions that a crash left half made; skip those that may be offline."""
    load = Counter(path.parent for path in live.values())
    for log in unmarked:
        if log not in live:
            if not is_whole:
                continue
            partitions = directories.by_load(load)[0].partitions
            live[log] = partitions.path_of(log)
            load[live[log].parent] += 1
            partitions.begin_anew(live[log])
        path = live[log]
        directories.of(path).partitions.make_directory(topics[log.topic], path)
