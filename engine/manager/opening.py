"""Startup: repairs the data directories, then opens their logs in parallel and reports progress."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from engine.checkpoint.tidelog_files import TopicEntry
from engine.errors import InvalidDataDirectory, Overloaded, Recovering, StorageFull, StorageOffline
from engine.log.log import Log
from engine.manager.directories import Directories
from engine.manager.directory import DataDirectory
from engine.manager.membership import OfflineLog
from engine.manager.topics import Topic, reconcile
from engine.types import TopicPartition

ProgressListener: TypeAlias = Callable[["RecoveryProgress"], None]


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """The progress of a start."""

    total_logs: int
    opened_logs: int
    opening: tuple[TopicPartition, ...] = ()
    """The logs that are being opened."""


class ProgressBoard:
    """Counts opened logs; Kafka's remainingLogsToRecover. Thread-safe.

    The listener is called from the threads that open logs, one call at a time.
    """

    def __init__(self, listener: ProgressListener | None = None) -> None:
        self.latest = RecoveryProgress(0, 0)
        self._listener = listener
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """Open no further logs."""
        self._stopped.set()

    def expect(self, total_logs: int) -> None:
        with self._lock:
            self._publish(RecoveryProgress(total_logs, 0))

    def begin(self, log: TopicPartition) -> None:
        with self._lock:
            before = self.latest
            opening = (*before.opening, log)
            self._publish(RecoveryProgress(before.total_logs, before.opened_logs, opening))

    def end(self, log: TopicPartition, *, opened: bool) -> None:
        with self._lock:
            before = self.latest
            opening = tuple(other for other in before.opening if other != log)
            self._publish(RecoveryProgress(before.total_logs, before.opened_logs + opened, opening))

    def _publish(self, progress: RecoveryProgress) -> None:
        self.latest = progress
        if self._listener is not None:
            self._listener(progress)


@dataclass(frozen=True, slots=True)
class OpenJob:
    """One log to open."""

    log: TopicPartition
    directory: Path


def open_all(
    jobs: Iterable[OpenJob],
    open_one: Callable[[OpenJob], Log],
    *,
    threads: int,
    board: ProgressBoard,
) -> tuple[list[Log], list[OfflineLog]]:
    """Open every log; return the open ones, and those that could not be opened.

    Each data directory has a pool of `threads` threads. After a failure that concerns more than one
    log (the disk, its space, the number of open files), or once the board is stopped, no further
    log is opened; all that were opened are closed without a write, and the first error, or
    Recovering, is raised.
    """
    jobs = tuple(jobs)
    board.expect(len(jobs))

    offline: list[OfflineLog] = []

    def run(job: OpenJob) -> Log | None:
        if board.is_stopped:
            return None
        board.begin(job.log)
        log, is_over = None, False
        try:
            log = open_one(job)
            is_over = True
        except (StorageOffline, StorageFull, Overloaded):
            raise
        except Exception as error:  # noqa: BLE001 - the other logs are still opened
            offline.append(OfflineLog.of(job.log, job.directory, error))
            is_over = True
        finally:
            if not is_over:
                board.stop()
            board.end(job.log, opened=is_over)
        return log

    with contextlib.ExitStack() as stack:
        pools = {
            data_directory: stack.enter_context(
                ThreadPoolExecutor(max_workers=threads, thread_name_prefix="tidelog-recovery")
            )
            for data_directory in {job.directory.parent for job in jobs}
        }
        futures = [pools[job.directory.parent].submit(run, job) for job in jobs]
    opened = [log for future in futures if not future.exception() and (log := future.result())]
    errors = [error for future in futures if (error := future.exception())]
    if board.is_stopped:
        let_go(opened)
        raise errors[0] if errors else Recovering("the start was interrupted")
    return opened, offline


def let_go(logs: Sequence[Log]) -> None:
    """Close files without writing: what is on disk is recovered at the next start."""
    for log in logs:
        log.maintenance.close_handles()


def for_each(
    logs: Iterable[Log], work: Callable[[Log], None], *, threads: int
) -> list[tuple[Log, Exception]]:
    """Call `work` for every log on a pool of threads; return the failures instead of raising."""

    def run(log: Log) -> tuple[Log, Exception] | None:
        try:
            work(log)
        except Exception as error:  # noqa: BLE001 - returned to the caller
            return log, error
        return None

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="tidelog-closing") as pool:
        return [failure for failure in pool.map(run, logs) if failure is not None]


def flush_and_close(log: Log) -> None:
    """Flush a log and close it, as on a clean stop."""
    while not log.close(if_flushed=True):
        log.durability.flush()


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
