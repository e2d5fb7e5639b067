"""Group offsets in memory and in the log.

The log is the truth. An offset is one record of the compacted topic `__consumer_offsets`. Memory
holds the last record of each key, and the records that are not on disk yet. A look-up decides by
the log's high watermark which of them counts: a reader never sees an offset that a power failure
can remove, and a flush needs no notification.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from app.http.problems import CursorNotFound, GroupNotFound
from app.settings import Settings
from app.store.local.commits import Commits
from app.store.local.group_loading import Stored, load_cursors
from app.store.local.group_records import (
    CursorKey,
    CursorValue,
    encode_key,
    encode_value,
    partition_of_group,
)
from engine.clock import Clock
from engine.errors import EngineError, PartitionNotFound, PolicyViolation
from engine.guard import WouldBlock
from engine.log.log import Log
from engine.log.results import Appended
from engine.records.builder import build_batch
from engine.runtime import Runtime
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

Hop: TypeAlias = Callable[[Callable[[], Appended]], Awaitable[Appended]]

OFFSETS_TOPIC: Final = "__consumer_offsets"

CONFIGURATION: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
"""Kafka's `GroupCoordinatorConfig.offsetTopicConfigs`, with the default segment size."""


class LoadProgress(NamedTuple):
    """Progress: the number of logs of the offsets topic that were read."""

    loaded_logs: int
    total_logs: int


class _Group:
    """One group: the log of its records, and the last records of each of its offsets."""

    __slots__ = ("cursors", "home")

    def __init__(self, home: int) -> None:
        self.home = home
        self.cursors: dict[CursorKey, list[Stored]] = {}
        """At most one record on disk, then those that are not."""


def no_such_group(group: str) -> GroupNotFound:
    """Return the error for a group that does not exist."""
    return GroupNotFound(f"group {group!r} has stored no offset", group=group)


class GroupOffsets:
    """The offsets of all groups. Belongs to the event loop after `load`, which runs on any thread.

    `hop` runs appends that need a worker.
    """

    def __init__(
        self, runtime: Runtime, settings: Settings, clock: Clock, *, hop: Hop, commits: Commits
    ) -> None:
        self.changing = asyncio.Lock()
        """Held from reading an offset until it is replaced."""
        self._hop = hop
        self._commits = commits
        self._runtime = runtime
        self._settings = settings
        self._clock = clock
        self._logs: dict[int, Log] = {}
        self._failed: dict[int, EngineError] = {}
        self._groups: dict[str, _Group] = {}
        self._cursors_count = 0
        self._is_made = False
        self.progress = LoadProgress(0, 0)

    def load(self) -> None:
        """Read all offsets. If a log cannot be read, only requests for its groups fail."""
        manager = self._runtime.manager
        topic = manager.topics().get(OFFSETS_TOPIC)
        if topic is None:
            return
        self.use(self._present())
        for done, (number, log) in enumerate(self._logs.items()):
            self.progress = LoadProgress(done, len(self._logs))
            try:
                cursors = load_cursors(log, limit_bytes=self._settings.max_decompressed_batch_bytes)
            except EngineError as error:
                _LOG.error("the cursors in %s cannot be read: %s", log.topic_partition, error)
                self._failed[number] = error
                continue
            for key, stored in cursors.items():
                group = self._groups.setdefault(key.group, _Group(number))
                self._cursors_count += key not in group.cursors
                group.cursors[key] = [stored]
        self.progress = LoadProgress(len(self._logs), len(self._logs))

    # -- the topic ---------------------------------------------------------------------------

    @property
    def is_made(self) -> bool:
        """Whether the offsets topic exists and is compacted, so that offsets can be stored."""
        return self._is_made

    def make(self) -> dict[int, Log]:
        """Create the offsets topic, or enable compaction of a broker's; for a worker thread.

        It gets the configuration that every broker gives it. Raises what `create_topic` does.
        """
        manager = self._runtime.manager
        topic = manager.topics().get(OFFSETS_TOPIC)
        if topic is None:
            partitions = self._settings.offsets_topic_partitions
            manager.create_topic(OFFSETS_TOPIC, partitions, CONFIGURATION, internal=True)
        elif "cleanup.policy" not in topic.overrides:
            manager.update_topic(OFFSETS_TOPIC, CONFIGURATION, internal=True)
        return self._present()

    def use(self, logs: dict[int, Log]) -> None:
        """Use the result of `make`."""
        self._logs = logs
        topic = self._runtime.manager.topic(OFFSETS_TOPIC)
        self._is_made = "cleanup.policy" in topic.overrides

    def _present(self) -> dict[int, Log]:
        """Return the topic's logs in this service; an adopted directory has only some."""
        return {
            log.topic_partition.partition: log
            for log in sorted(self._runtime.manager.logs(), key=lambda log: log.topic_partition)
            if log.topic_partition.topic == OFFSETS_TOPIC
        }

    # -- look-ups ----------------------------------------------------------------------------

    def names(self, after: str) -> list[str]:
        """Return the groups after this name, sorted; raises if a log could not be read.

        A group that is being created or deleted may have no offset; see `keys`.
        """
        for error in self._failed.values():
            raise error.with_traceback(None)
        return sorted(name for name in self._groups if name > after)

    def keys(self, group: str) -> Iterator[CursorKey]:
        """Yield the offsets of a group; none if it does not exist."""
        return (key for key, _ in self._settled(group))

    def cursors(self, group: str) -> list[tuple[CursorKey, CursorValue]]:
        """Return the offsets of a group by topic and partition; raises GroupNotFound."""
        self._ensure_readable(group)
        found = sorted(self._settled(group), key=lambda one: one[0])
        if not found:
            raise no_such_group(group)
        return found

    def cursor(self, key: CursorKey) -> Stored:
        """Return one offset as it is on disk; raises CursorNotFound."""
        self._ensure_readable(key.group)
        stored = self._on_disk(self._versions(key))
        if stored is None or stored.value is None:
            raise CursorNotFound(
                f"group {key.group!r} has stored no offset for {key.topic}-{key.partition}",
                group=key.group,
                topic=key.topic,
                partition=key.partition,
            )
        return stored

    def newest(self, key: CursorKey) -> Stored | None:
        """Return the latest record of an offset, on disk or not; None without one."""
        self._ensure_readable(key.group)
        versions = self._versions(key)
        return versions[-1] if versions and versions[-1].value is not None else None

    def of_topic(self, topic: str) -> Iterator[list[CursorKey]]:
        """Yield each group's offsets in a topic; groups may change during the iteration."""
        for group in tuple(self._groups.values()):
            yield [
                key
                for key, versions in group.cursors.items()
                if key.topic == topic and versions[-1].value is not None
            ]

    # -- changes -----------------------------------------------------------------------------

    async def append(self, key: CursorKey, value: CursorValue | None) -> Stored:
        """Append an offset, or None to delete it; return the record.

        The caller is inside `changing`, and waits until the record is on disk. Raises
        PolicyViolation beyond the limits of groups and offsets, and what an append raises.
        """
        assert self.changing.locked(), "what is judged must be what is replaced"
        home = self._ensure_readable(key.group)
        group = self._groups.get(key.group)
        if group is None or key not in group.cursors:
            self._ensure_room(key.group)
        now_ms = self._clock.now_ms()
        content = None if value is None else encode_value(value)
        batch = build_batch([(now_ms, encode_key(key), content, ())])
        log = self._logs[home]
        append = partial(
            self._runtime.committer.append, log, batch, acks_all=True, wakes=False, checked=True
        )
        try:
            appended = append(nonblocking=True)
        except WouldBlock:
            appended = await self._hop(append)
        stored = Stored(value, home, appended.base_offset)
        group = self._groups.setdefault(key.group, _Group(home))
        versions = group.cursors.setdefault(key, [])
        self._cursors_count += not versions
        settled = self._on_disk(versions)
        if settled is not None:
            del versions[: versions.index(settled)]
        versions.append(stored)
        return stored

    async def committed(self, stored: Stored) -> None:
        """Wait until a record is on disk; raises what `Commits.wait` does."""
        log = self._logs[stored.log_partition]
        waiting = self._commits.wait(log, stored.record_offset + 1)
        if waiting is not None:
            await waiting

    def forget(self, keys: Sequence[CursorKey]) -> None:
        """Remove offsets from memory whose deletion is on disk."""
        for key in keys:
            versions = self._versions(key)
            if versions and versions[-1].value is None and self._on_disk(versions) is versions[-1]:
                group = self._groups[key.group]
                del group.cursors[key]
                self._cursors_count -= 1
                if not group.cursors:
                    del self._groups[key.group]

    # -- private steps -----------------------------------------------------------------------

    def _ensure_room(self, group: str) -> None:
        limits = self._settings
        known = self._groups.get(group)
        if known is None and len(self._groups) >= limits.max_groups:
            raise _full("max_groups", limits.max_groups)
        if known is not None and len(known.cursors) >= limits.max_offsets_per_group:
            raise _full("max_offsets_per_group", limits.max_offsets_per_group)
        if self._cursors_count >= limits.max_group_offsets:
            raise _full("max_group_offsets", limits.max_group_offsets)

    def _ensure_readable(self, group: str) -> int:
        """Return the log of a group; raises the error of reading it."""
        home = self._home(group)
        if home in self._failed:
            raise self._failed[home].with_traceback(None)
        return home

    def _home(self, group: str) -> int:
        """Return the partition of a group's records, or the one that Kafka would use."""
        known = self._groups.get(group)
        if known is not None:
            return known.home
        if not self._logs:
            return 0
        manager = self._runtime.manager
        number = partition_of_group(group, manager.topic(OFFSETS_TOPIC).partitions)
        if number not in self._logs:
            # The log of an offline directory is not replaced: its offsets will be back.
            with contextlib.suppress(PartitionNotFound):
                manager.log(TopicPartition(OFFSETS_TOPIC, number))
            number = list(self._logs)[number % len(self._logs)]
        return number

    def _versions(self, key: CursorKey) -> list[Stored]:
        group = self._groups.get(key.group)
        return [] if group is None else group.cursors.get(key, [])

    def _settled(self, name: str) -> Iterator[tuple[CursorKey, CursorValue]]:
        group = self._groups.get(name)
        for key, versions in group.cursors.items() if group is not None else ():
            stored = self._on_disk(versions)
            if stored is not None and stored.value is not None:
                yield key, stored.value

    def _on_disk(self, versions: Sequence[Stored]) -> Stored | None:
        for stored in reversed(versions):
            log = self._logs[stored.log_partition]
            if stored.record_offset < log.watermarks.high_watermark:
                return stored
        return None


def _full(limit: str, value: int) -> PolicyViolation:
    return PolicyViolation(f"{limit} ({value}) is reached", limit=limit, limit_value=value)
