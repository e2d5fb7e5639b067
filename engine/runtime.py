"""Composes the engine, and starts and stops its parts in order; `app` opens a `Runtime`.

The order of the start: scheduler, logs, committer, periodic passes, cleaner, moves, scrubber,
archive. At a stop the scrubber abandons its pass, restores of topics are given up, moves are left
to the next start, the cleaner abandons its round, the committer syncs everything appended, the
archive takes what is left, the scheduler stops, and the logs are closed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.archive.archiver import Archiver
from engine.archive.store import ObjectStore
from engine.archive.topic_restores import TopicRestores
from engine.background.committer import Committer, OnCommit, OnFailure
from engine.background.mover import PartitionMover
from engine.background.scrubber import Scrubber
from engine.cleaner.cleaner import LogCleaner, remove_old_segments
from engine.clock import Clock, SystemClock
from engine.config import EngineConfig
from engine.errors import StorageError
from engine.fs.port import FileSystem
from engine.fs.posix import PosixFileSystem
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.manager.opening import ProgressListener
from engine.metrics import NullRecorder, Recorder
from engine.scheduler import Scheduler, Task, ThreadScheduler

_LOG = logging.getLogger(__name__)


def expire_producers(logs: Iterable[Log]) -> int:
    """Expire the producers that have been idle for too long, in every log; return how many."""
    expired = {log.topic_partition: log.producers.expire() for log in logs}
    for log, count in expired.items():
        if count:
            _LOG.debug("%s: forgot %d idle producers", log, count)
    return sum(expired.values())


def run_retention_pass(logs: Iterable[Log]) -> int:
    """Remove old segments of all logs except compacted ones, which the cleaner handles."""
    return remove_old_segments(log for log in logs if not log.config.is_compacted)


class Runtime:
    """The engine on one or several data directories. Thread-safe; `open` once, `close` once.

    `archive` is the object store that gets a copy of everything committed.

    `on_commit` and `on_failure` are called by the thread of a round, see `Committer`. The caller
    starts and stops a scheduler that it passes in.
    """

    def __init__(
        self,
        data_directories: Path | Sequence[Path],
        config: EngineConfig | None = None,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
        recorder: Recorder | None = None,
        on_commit: OnCommit | None = None,
        on_failure: OnFailure | None = None,
        archive: ObjectStore | None = None,
    ) -> None:
        self.config = config or EngineConfig()
        clock = clock or SystemClock()
        self._own_scheduler: ThreadScheduler | None = None
        if scheduler is None:
            scheduler = self._own_scheduler = ThreadScheduler(clock)
        self._scheduler = scheduler
        fs = fs or PosixFileSystem()
        recorder = recorder or NullRecorder()
        self.manager = LogManager(
            data_directories,
            fs=fs,
            clock=clock,
            scheduler=self._scheduler,
            recorder=recorder,
            config=self.config,
        )
        self.committer = Committer(
            self.config, clock, on_commit or _ignore_commit, on_failure or _ignore_failure
        )
        self.cleaner = LogCleaner(
            self.manager, clock=clock, config=self.config.cleaner, recorder=recorder
        )
        self.mover = PartitionMover(
            self.manager, recorder, max_waiting=self.config.max_waiting_moves
        )
        self.scrubber = Scrubber(
            self.manager, clock=clock, config=self.config.scrub, recorder=recorder
        )
        self.archiver: Archiver | None = None
        """Copies everything committed to the object store, if there is one."""
        self.topic_restores: TopicRestores | None = None
        """Brings topics back from there."""
        if archive is not None:
            self.archiver = Archiver(
                self.manager,
                archive,
                fs=fs,
                clock=clock,
                config=self.config.archive,
                recorder=recorder,
            )
            self.topic_restores = TopicRestores(self.manager, archive, fs)
        self._life = threading.Lock()
        self._tasks: list[Task] = []

    def open(self, progress: ProgressListener | None = None) -> None:
        """Open every log and start the background work; raises what `LogManager.open` raises.

        And ArchiveFenced if the archive belongs to another data directory: nothing is open then.

        May take long after a crash: `manager.recovery_progress` returns the progress, and `close`
        on another thread cancels it.
        """
        with self._life:
            if self._own_scheduler is not None:
                self._own_scheduler.start()
            try:
                self.manager.open(progress)
            except BaseException:
                self._stop_scheduler()
                raise
            self.committer.start()
            self._start_passes()
            self.cleaner.start()
            self.mover.resume()
            self.scrubber.start()
            if self.archiver is not None:
                try:
                    self.archiver.start()
                except BaseException:
                    self._close()
                    raise

    def close(self) -> None:
        """Flush everything, close all logs and release the directories. May be called again."""
        self.manager.interrupt()
        with self._life:
            self._close()

    def _close(self) -> None:
        self.scrubber.stop()
        if self.topic_restores is not None:
            self.topic_restores.stop()
        self.mover.stop()
        self.cleaner.stop()
        self.committer.stop()
        if self.archiver is not None:
            self.archiver.stop()
        for task in self._tasks:
            task.cancel()
        self._stop_scheduler()
        self.manager.close()

    def _stop_scheduler(self) -> None:
        if self._own_scheduler is not None:
            self._own_scheduler.stop()

    def _start_passes(self) -> None:
        config = self.config
        passes = (
            ("log-retention", config.retention_check_interval_ms, self._run_retention),
            ("log-checkpoints", config.checkpoint_interval_ms, self._write_checkpoints),
            ("producer-expiry", config.producer_id_expiration_check_interval_ms, self._expire),
        )
        self._tasks += [
            self._scheduler.every(name, period_ms, work, delay_ms=config.initial_task_delay_ms)
            for name, period_ms, work in passes
        ]

    def _run_retention(self) -> None:
        run_retention_pass(
            log for log in self.manager.logs() if not log.durability.health.is_offline
        )

    def _write_checkpoints(self) -> None:
        if not self.manager.health.is_offline:
            try:
                self.manager.checkpoint()
            except StorageError as error:
                _LOG.error("checkpoints were not written: %s", error)
            self.manager.review_damage()

    def _expire(self) -> None:
        expire_producers(self.manager.logs())


def _ignore_commit(logs: Sequence[tuple[Log, int]]) -> None:
    """Ignore commits."""


def _ignore_failure(logs: Sequence[Log], error: StorageError) -> None:
    """Ignore failures; the directory's health reports them."""
