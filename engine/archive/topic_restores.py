"""Brings topics back from the archive into the directories in use, under another name.

For what was deleted or damaged by mistake: the copy has the records, offsets, leader epochs and
producers of the original at the wanted time. One topic is restored at a time, the others wait; what
a stop or a crash interrupts is gone, and may be asked for again.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from engine.archive.catalog import ArchivedTopic
from engine.archive.restore import ArchivedPartition, Selection, restore_copy_of, select
from engine.archive.store import ArchiveDamaged, ArchiveError, ObjectStore, StoreUnavailable
from engine.errors import (
    ArchiveUnavailable,
    EngineError,
    Overloaded,
    Recovering,
    StorageFull,
    TopicConflict,
    TopicNotFound,
)
from engine.fs.port import FileSystem
from engine.manager.manager import LogManager
from engine.manager.partitions import LeftState
from engine.manager.topics import Topic, ensure_valid_name
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

MAX_RESTORES: Final = 100
"""How many restores of topics wait at once, and are remembered."""

RESERVED_BYTES: Final = 2**30
"""What a restore leaves to appends on each file system, or a twentieth of it if that is less."""

KEEPS_EVERYTHING: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""The configuration of a copy: the original's retention may just have removed what is restored."""

_OF_TIERED_TOPICS: Final = ("remote.storage.enable", "local.retention.ms", "local.retention.bytes")
"""What a copy does not take over: all of it is on the disk."""


class RestoreState(enum.Enum):
    """The progress of the restore of a topic."""

    WAITING = "waiting"
    RESTORING = "restoring"
    DONE = "done"
    FAILED = "failed"
    """Nothing of it is there."""


@dataclass(frozen=True, slots=True)
class TopicRestore:
    """One restore: `restored_bytes` of `total_bytes` were read from the archive."""

    topic: str
    source: str
    """The topic in the archive."""
    until_ms: int | None
    """The moment whose state is restored; None is the present one."""
    state: RestoreState
    partitions: int
    total_bytes: int
    restored_bytes: int = 0
    problems: tuple[str, ...] = ()
    """Why it failed, or where a partition ends before the archive does."""

    @property
    def is_over(self) -> bool:
        return self.state in {RestoreState.DONE, RestoreState.FAILED}


class TopicRestores:
    """Restores topics in the background. Thread-safe; `stop` once."""

    def __init__(self, manager: LogManager, store: ObjectStore, fs: FileSystem) -> None:
        self._manager = manager
        self._store = store
        self._fs = fs
        self._lock = threading.Lock()
        self._reports: dict[str, TopicRestore] = {}
        """By the name of the new topic, the newest last. A report is replaced as a whole."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidelog-topic-restore")
        self._stopping = threading.Event()

    def start(
        self,
        name: str,
        source: str,
        until_ms: int | None,
        ensure_allowed: Callable[[int], None],
    ) -> TopicRestore:
        """Look into the archive, and queue the restore of one of its topics as `name`.

        `ensure_allowed` is called with the number of partitions, and may raise.

        Raises InvalidTopicName, TopicConflict if there is such a topic, TopicNotFound if the
        archive does not have the source at that time, ArchiveUnavailable, StorageFull if the disks
        have less room than it needs, Overloaded if too many wait, Recovering once stopped.
        """
        ensure_valid_name(name)
        if name in self._manager.topics():
            raise TopicConflict(f"topic {name!r} exists; choose another name", topic=name)
        try:
            chosen = select(self._store, topics=[source], until_ms=until_ms)
        except (StoreUnavailable, ArchiveDamaged) as error:
            raise ArchiveUnavailable(str(error), topic=source) from error
        except ArchiveError as error:
            raise TopicNotFound(str(error), topic=source) from error
        topic = chosen.topics[source]
        total_bytes = sum(one.size_bytes for one in chosen.partitions)
        self._ensure_space(total_bytes)
        ensure_allowed(topic.entry.partitions)
        report = TopicRestore(
            name, source, until_ms, RestoreState.WAITING, topic.entry.partitions, total_bytes
        )
        with self._lock:
            if self._stopping.is_set():
                raise Recovering("the data directories are being closed")
            known = self._reports.get(name)
            if known is not None and not known.is_over:
                raise TopicConflict(f"topic {name!r} is being restored", topic=name)
            self._make_room()
            self._reports.pop(name, None)
            self._reports[name] = report
            self._thread.submit(self._run, report, topic, chosen)
        return report

    def report(self, name: str) -> TopicRestore | None:
        """Return the last restore of a topic of that name; None if none is remembered."""
        return self._reports.get(name)

    def stop(self) -> None:
        """Give up the restore under way and those that wait. May be called again."""
        with self._lock:
            self._stopping.set()
        self._thread.shutdown(cancel_futures=True)

    def _ensure_space(self, total_bytes: int) -> None:
        online = [one.directory for one in self._manager.directories if not one.is_offline]
        spaces = {*map(self._fs.space, online)}  # directories of one file system are equal in this
        free_bytes = sum(
            max(0, space.free_bytes - min(RESERVED_BYTES, space.total_bytes // 20))
            for space in spaces
        )
        if total_bytes > free_bytes:
            raise StorageFull(
                f"the topic needs {total_bytes} bytes; besides a reserve for appends the data "
                f"directories have {free_bytes}"
            )

    def _make_room(self) -> None:
        over = [name for name, report in self._reports.items() if report.is_over]
        if len(self._reports) - len(over) >= MAX_RESTORES:
            raise Overloaded(f"{MAX_RESTORES} restores are waiting already")
        if len(self._reports) >= MAX_RESTORES:
            del self._reports[over[0]]

    def _run(self, report: TopicRestore, topic: ArchivedTopic, chosen: Selection) -> None:
        problems = list(chosen.problems)
        archived = {one.log.partition: one for one in chosen.partitions}
        restored_bytes = 0

        def count(_: TopicPartition, size_bytes: int) -> None:
            nonlocal restored_bytes
            if self._stopping.is_set():
                raise Recovering("the service stops")
            restored_bytes += size_bytes
            self._reports[report.topic] = replace(
                report, state=RestoreState.RESTORING, restored_bytes=restored_bytes
            )

        def fill(created: Topic, log: TopicPartition, path: Path) -> LeftState:
            one = archived.get(log.partition)
            if one is None:
                return LeftState()
            manifest = replace(one.manifest, topic_id=created.topic_id)
            copy = ArchivedPartition(log, manifest)
            done, left = restore_copy_of(self._store, self._fs, copy, path, count)
            if done.problem is not None:
                problems.append(f"{log}: {done.problem}")
            return left

        state = RestoreState.DONE
        try:
            self._manager.restore_topic(
                report.topic,
                topic.entry.partitions,
                configuration_of_copy(topic.entry.config),
                fill,
                was_compacted=topic.entry.adopted or topic.entry.compacted,
            )
            _LOG.info("restored %s as %s", report.source, report.topic)
        except (ArchiveError, EngineError, OSError) as error:
            _LOG.error("%s was not restored as %s: %s", report.source, report.topic, error)
            state, problems = RestoreState.FAILED, [str(error)]
        except Exception as error:  # noqa: BLE001 - the report must say what failed
            _LOG.exception("%s was not restored as %s", report.source, report.topic)
            state, problems = RestoreState.FAILED, [f"{type(error).__name__}: {error}"]
        self._reports[report.topic] = replace(
            self._reports[report.topic], state=state, problems=tuple(problems)
        )


def configuration_of_copy(config: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of a restored copy: the original's, but nothing of it is removed."""
    kept = {name: value for name, value in config.items() if name not in _OF_TIERED_TOPICS}
    return {**kept, **KEEPS_EVERYTHING}
