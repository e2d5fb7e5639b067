"""The local side of the topics: the data directories of the engine in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from app.limits.executors import Workers
from app.limits.system_limits import ensure_partitions
from app.settings import Settings
from app.store.local.commits import Commits
from app.store.local.log_gauges import has_late_transaction, space_of
from app.store.local.partition import LocalPartition
from app.store.local.transactions import Transactions
from app.store.port import StoreTotals, TopicFigures, Topics
from engine.archive.topic_restores import TopicRestore, TopicRestores
from engine.background.mover import MoveReport
from engine.background.scrubber import ScrubReport
from engine.clock import Clock
from engine.errors import PolicyViolation
from engine.fs.port import FileSystem, Space
from engine.log.log import Log
from engine.manager.topics import Overrides, Topic
from engine.runtime import Runtime
from engine.topic_keys import EffectiveValue, effective
from engine.types import TopicPartition

INLINE_PARTITIONS: Final = 1_000
"""Partitions that are looked at on the event loop: each takes less than a microsecond of it."""


class DirectoryUse(NamedTuple):
    """A data directory and what lies in it."""

    path: Path
    problem: str | None
    """Why it is offline; None if it is not."""
    partitions: int
    size_bytes: int
    space: Space | None
    """Of its file system; None if that cannot be found out."""


class LocalTopics(Topics):
    """The topics of a runtime. Their changes run on the threads for administration."""

    def __init__(
        self,
        settings: Settings,
        *,
        runtime: Runtime,
        workers: Workers,
        commits: Commits,
        clock: Clock,
        fs: FileSystem,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self.transactions = Transactions(workers, runtime.committer, clock)
        self._settings = settings
        self._runtime = runtime
        self._workers = workers
        self._commits = commits

    def all(self) -> Mapping[str, Topic]:
        return self._runtime.manager.topics()

    def topic(self, name: str) -> Topic:
        return self._runtime.manager.topic(name)

    def effective(self, topic: Topic) -> Mapping[str, EffectiveValue]:
        """Return the topic's values over the settings' defaults."""
        overrides = {**self._settings.default_topic_config, **topic.overrides}
        return effective(overrides, adopted=topic.adopted)

    async def look_for(self, name: str) -> None:
        """Do nothing: this process alone changes its topics."""

    def offline(self) -> Sequence[TopicPartition]:
        return self._runtime.manager.offline_partitions()

    async def figures(self, topics: Sequence[Topic]) -> list[TopicFigures]:
        """Return size and age of some topics; on a worker if they have many partitions."""
        work = partial(_figures_of, topics, self._runtime.manager.logs_by_partition)
        if sum(topic.partitions for topic in topics) <= INLINE_PARTITIONS:
            return work()
        return await self._workers.administer(work)

    async def totals(self) -> StoreTotals:
        """Return the sums over all open logs, from a worker."""
        return await self._workers.administer(self._totals)

    def _totals(self) -> StoreTotals:
        manager, now_ms = self._runtime.manager, self._clock.now_ms()
        topics = manager.topics()
        logs = [log for log in manager.logs() if not topics[log.topic_partition.topic].is_internal]
        sizes: Counter[str] = Counter()
        for log in logs:
            sizes[log.topic_partition.topic] += log.reader.size_bytes
        return StoreTotals(
            sizes,
            is_complete=not manager.offline_logs
            and not any(health.is_offline for health in manager.directories),
            unflushed_bytes=sum(log.durability.uncommitted_bytes for log in logs),
            late_transaction_partitions=sum(has_late_transaction(log, now_ms) for log in logs),
        )

    def partition(self, name: str, number: int) -> LocalPartition:
        return LocalPartition(
            self._runtime.manager.log(TopicPartition(name, number)),
            runtime=self._runtime,
            workers=self._workers,
            commits=self._commits,
            transactions=self.transactions,
            url_prefix=self._settings.url_prefix,
        )

    async def create(self, name: str, partitions: int, overrides: Overrides) -> tuple[Topic, bool]:
        """Create a topic, if the system's limits have room for its partitions."""
        manager = self._runtime.manager

        def create() -> tuple[Topic, bool]:
            if name not in manager.topics():
                self._ensure_resources(partitions)
            return manager.create_topic(name, partitions=partitions, overrides=overrides)

        return await self._workers.administer(create)

    async def ensure_internal(self, name: str, overrides: Overrides) -> None:
        manager = self._runtime.manager

        def create() -> None:
            if name not in manager.topics():
                manager.create_topic(name, 1, overrides, internal=True)

        await self._workers.administer(create)

    async def update(self, name: str, changes: Overrides, partitions: int | None) -> Topic:
        """Change a topic, if the system's limits have room for what it grows by."""
        manager = self._runtime.manager

        def update() -> Topic:
            if partitions is not None:
                self._ensure_resources(partitions - manager.topic(name).partitions)
            return manager.update_topic(name, changes=changes, partitions=partitions)

        return await self._workers.administer(update)

    async def delete(self, name: str) -> None:
        """Delete a topic at once; its files are removed later."""
        manager = self._runtime.manager
        await self._workers.administer(lambda: manager.delete_topic(name))

    async def allocate_producer(self) -> tuple[int, int]:
        return await self._workers.administer(self._runtime.manager.allocate_producer)

    def _ensure_resources(self, partitions: int) -> None:
        """Refuse partitions that the system's limits do not allow, unless the engine refuses."""
        if partitions <= self._settings.max_partitions_per_topic:
            ensure_partitions(partitions, len(self._runtime.manager.logs()))

    async def directories(self) -> list[DirectoryUse]:
        """Return all data directories with their contents."""
        manager = self._runtime.manager

        def look() -> list[DirectoryUse]:
            logs = [(log.directory.parent, log.reader.size_bytes) for log in manager.logs()]
            return [
                DirectoryUse(
                    path=health.directory,
                    problem=str(health.cause) if health.is_offline else None,
                    partitions=sum(path == health.directory for path, _ in logs),
                    size_bytes=sum(size for path, size in logs if path == health.directory),
                    space=space_of(self._fs, health.directory),
                )
                for health in manager.directories
            ]

        return await self._workers.administer(look)

    async def moves(self) -> list[MoveReport]:
        """Return the moves of partitions that are remembered, the newest last."""
        return await self._workers.administer(self._runtime.mover.reports)

    async def restore(self, name: str, source: str, until_ms: int | None) -> TopicRestore:
        """Begin to restore a topic of the archive as `name`; raises as `TopicRestores.start`."""
        restores = self._restores()
        return await self._workers.administer(
            lambda: restores.start(name, source, until_ms, self._ensure_resources)
        )

    def last_restore(self, name: str) -> TopicRestore | None:
        """Return the last restore of a topic of that name, if one is remembered."""
        return self._restores().report(name)

    def _restores(self) -> TopicRestores:
        restores = self._runtime.topic_restores
        if restores is None:
            raise PolicyViolation("this service has no archive: it was started without --archive")
        return restores

    @property
    def scrub_report(self) -> ScrubReport | None:
        """The report of the last complete scrub."""
        return self._runtime.scrubber.report


def _figures_of(topics: Sequence[Topic], logs: Mapping[TopicPartition, Log]) -> list[TopicFigures]:
    figures = []
    for topic in topics:
        found = [logs.get(TopicPartition(topic.name, number)) for number in range(topic.partitions)]
        known = [log for log in found if log is not None]
        size_bytes = sum(log.reader.size_bytes for log in known)
        newest = max((log.reader.newest_timestamp for log in known), default=-1)
        is_whole = len(known) == len(found) or topic.adopted
        figures.append(
            TopicFigures(size_bytes if is_whole else None, newest if newest >= 0 else None)
        )
    return figures
