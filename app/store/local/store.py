"""The local side as a whole: the engine's runtime in this process, and what waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from app.disk_paths import without_directories, without_paths
from app.limits.executors import Workers
from app.limits.system_limits import FILES_OF_PARTITION, spare_files
from app.settings import Settings
from app.store.local.archive_gauges import archive_gauges
from app.store.local.commits import Commits
from app.store.local.documents import LocalDocuments
from app.store.local.group_offsets import LocalGroupOffsets
from app.store.local.log_gauges import LogGauges
from app.store.local.topics import LocalTopics
from app.store.port import Store
from engine.archive.store import ArchiveError, ObjectStore
from engine.clock import Clock
from engine.errors import InvalidConfig
from engine.fs.port import FileSystem
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.manager.membership import OfflineLog
from engine.metrics import Recorder
from engine.runtime import Runtime

_LOG = logging.getLogger(__name__)

MAX_OFFLINE_LOGS_TOLD: Final = 100
"""Logs that could not be opened and are named in the readiness report; it counts all."""


class LocalStore(Store):
    """The data directories of this process. Everything but `runtime` belongs to the event loop."""

    backend = "local"
    durability = "fsync"

    topics: LocalTopics
    groups: LocalGroupOffsets
    documents: LocalDocuments

    def __init__(
        self,
        settings: Settings,
        *,
        workers: Workers,
        clock: Clock,
        fs: FileSystem,
        recorder: Recorder,
        on_moved: Callable[[Log], None],
    ) -> None:
        self.commits = Commits(timeout_ms=settings.commit_timeout_ms, on_moved=on_moved)
        self.runtime = Runtime(
            settings.data_directories,
            settings.engine_config(),
            fs=fs,
            clock=clock,
            recorder=recorder,
            on_commit=self.commits.committed,
            on_failure=self.commits.failed,
            archive=_bucket(settings),
        )
        self.topics = LocalTopics(
            settings,
            runtime=self.runtime,
            workers=workers,
            commits=self.commits,
            clock=clock,
            fs=fs,
        )
        self.groups = LocalGroupOffsets(
            self.runtime, settings, clock, workers=workers, commits=self.commits
        )
        self.documents = LocalDocuments(
            settings.data_directory, fs=fs, manager=self.runtime.manager, workers=workers
        )
        self._gauges = LogGauges(
            self.runtime.manager,
            fs=fs,
            clock=clock,
            max_partitions=settings.max_metric_partitions,
        )

    @property
    def manager(self) -> LogManager:
        """Topics and logs; empty until they are open."""
        return self.runtime.manager

    async def open(self) -> None:
        """Open all logs on a separate thread. InvalidConfig if the archive is somebody else's."""
        self.commits.attach(asyncio.get_running_loop(), self.runtime.committer.wake)
        try:
            await asyncio.to_thread(self.runtime.open)
        except ArchiveError as error:
            raise InvalidConfig(str(error)) from error
        await asyncio.to_thread(self.documents.load)
        await asyncio.to_thread(self.groups.load)
        await asyncio.to_thread(self._warn_of_resources)

    async def close(self) -> None:
        """Flush, write checkpoints and the clean-shutdown marker, and end all threads."""
        await asyncio.to_thread(self.runtime.close)

    def _warn_of_resources(self) -> None:
        partitions = len(self.manager.logs())
        if spare_files(partitions) < 0:
            _LOG.warning(
                "%d partitions may need %d open files each, more than the limit allows: "
                "raise the limit of open files (ulimit -n)",
                partitions,
                FILES_OF_PARTITION,
            )

    def progress(self) -> Mapping[str, int]:
        logs, groups = self.manager.recovery_progress, self.groups.progress
        return {
            "opened_logs": logs.opened_logs,
            "total_logs": logs.total_logs,
            "loaded_group_logs": groups.loaded_logs,
            "total_group_logs": groups.total_logs,
        }

    def failure(self) -> str | None:
        health = self.manager.health
        return self.shown(str(health.cause)) if health.is_offline else None

    def report(self) -> Mapping[str, object]:
        """Return which data directories and logs cannot be used."""
        report: dict[str, object] = {}
        directories = self.manager.directories
        failed_count = sum(one.is_offline for one in directories)
        if failed_count:
            report["detail"] = f"{failed_count} of {len(directories)} data directories are offline"
            report["offline_directories_count"] = failed_count
        offline = self.manager.offline_logs
        if offline:
            report["offline_logs_count"] = len(offline)
            report["offline_logs"] = [*map(_described, offline[:MAX_OFFLINE_LOGS_TOLD])]
        damage = self.manager.damage
        if damage:
            report["damaged_places_count"] = len(damage)
            report["damage"] = [place.facts() for place in damage[:MAX_OFFLINE_LOGS_TOLD]]
        archiver = self.runtime.archiver
        if archiver is not None:
            url, phase, problem = archiver.report
            report["archive"] = {
                "phase": phase.value,
                "lag_ms": archiver.lag_ms,
                "url": url,
                "problem": problem,
            }
        return report

    def shown(self, report: str) -> str:
        """Return a report without the paths of the data directories."""
        return without_directories(report, [one.directory for one in self.manager.directories])

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of logs and directories, and how many appends wait for the disk."""
        yield from self._gauges.collect()
        if self.runtime.archiver is not None:
            yield from archive_gauges(self.runtime.archiver)
        yield GaugeMetricFamily(
            "tidelog_waiting_appends", "Appends that wait for a sync", self.commits.waiting
        )


def _bucket(settings: Settings) -> ObjectStore | None:
    if not settings.archive:
        return None
    from app.buckets import folder_in, open_bucket  # noqa: PLC0415 - 15 MB that few services need

    try:
        _ensure_elsewhere(folder_in(settings.archive), settings.data_directories)
        return open_bucket(settings.archive)
    except ArchiveError as error:
        raise InvalidConfig(f"archive: {error}") from error


def _ensure_elsewhere(folder: Path | None, directories: Iterable[Path]) -> None:
    for directory in directories:
        if folder is not None and folder.is_relative_to(directory.absolute()):
            raise ArchiveError(f"{folder} is in a data directory: choose a place that outlives it")


def _described(log: OfflineLog) -> dict[str, object]:
    problem, facts = without_paths(log.problem, log.refusal().facts())
    return {
        "topic": log.topic_partition.topic,
        "partition": log.topic_partition.partition,
        "file": facts["file"],
        "problem": problem,
    }
