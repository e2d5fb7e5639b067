"""Opens many logs in parallel and reports progress."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from engine.errors import Overloaded, Recovering, StorageFull, StorageOffline
from engine.log.log import Log
from engine.manager.offline import OfflineLog
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
