"""Group offsets in memory and in the log.

The log is the truth. An offset is one record of the compacted topic `__consumer_offsets`. Memory
holds the last record of each key, and the records that are not on disk yet. A look-up decides by
the log's high watermark which of them counts: a reader never sees an offset that a power failure
can remove, and a flush needs no notification.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from app.limits.executors import Workers
from app.limits.makers import EVERYBODY, Makers
from app.settings import Settings
from app.store.groups import Cursor, CursorKey, CursorValue, GroupOffsets, no_such_cursor
from app.store.local.commits import Commits
from app.store.local.group_loading import Stored, load_cursors
from app.store.local.group_records import encode_key, encode_value
from app.store.local.offsets_topic import OffsetsTopic
from engine.clock import Clock
from engine.errors import EngineError, PolicyViolation, WouldBlock
from engine.records.builder import build_batch
from engine.runtime import Runtime

_LOG = logging.getLogger(__name__)

LOOKED_AT_TOGETHER: Final = 100
"""Groups that are processed per turn of the loop; with the maximum of both, a group has ten
offsets."""


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


class LocalGroupOffsets(GroupOffsets):
    """The offsets of all groups. Belongs to the event loop after `load`, which runs on any thread.

    `workers` run appends that would block.
    """

    has_conditions = True

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        clock: Clock,
        *,
        workers: Workers,
        commits: Commits,
    ) -> None:
        self._changing = asyncio.Lock()
        """Held from reading an offset until it is replaced."""
        self._workers = workers
        self._commits = commits
        self._runtime = runtime
        self._settings = settings
        self._clock = clock
        self._topic = OffsetsTopic(runtime.manager, partitions=settings.offsets_topic_partitions)
        self._failed: dict[int, EngineError] = {}
        self._groups: dict[str, _Group] = {}
        self._cursors_count = 0
        percent = settings.max_share_percent
        self._makers_of_groups = Makers[str]("max_groups", settings.max_groups, percent)
        self._makers = Makers[CursorKey]("max_group_offsets", settings.max_group_offsets, percent)
        self.progress = LoadProgress(0, 0)

    def load(self) -> None:
        """Read all offsets. If a log cannot be read, only requests for its groups fail."""
        self._topic.find()
        logs = self._topic.logs
        for done, (number, log) in enumerate(logs.items()):
            self.progress = LoadProgress(done, len(logs))
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
        self.progress = LoadProgress(len(logs), len(logs))

    # -- look-ups ----------------------------------------------------------------------------

    async def names(
        self, after: str, *, at_most: int, wanted: Callable[[CursorKey], bool]
    ) -> Sequence[str]:
        """Look at the groups in several turns of the loop; raises if a log could not be read."""
        for error in self._failed.values():
            raise error.with_traceback(None)
        names: list[str] = []
        later = sorted(name for name in self._groups if name > after)
        for count, name in enumerate(later, start=1):
            if any(wanted(key) for key, _ in self._settled(name)):
                names.append(name)
            if len(names) == at_most:
                break
            if count % LOOKED_AT_TOGETHER == 0:
                await asyncio.sleep(0)
        return names

    async def of_group(self, group: str) -> Sequence[tuple[CursorKey, CursorValue]]:
        self._ensure_readable(group)
        return sorted(self._settled(group), key=lambda one: one[0])

    async def get(self, key: CursorKey) -> Cursor:
        self._ensure_readable(key.group)
        stored = self._on_disk(self._versions(key))
        cursor = None if stored is None else stored.cursor
        if cursor is None:
            raise no_such_cursor(key)
        return cursor

    # -- changes -----------------------------------------------------------------------------

    async def put(
        self, key: CursorKey, decide: Callable[[Cursor | None], CursorValue], maker: str = EVERYBODY
    ) -> tuple[Cursor, bool]:
        """Judge by the latest record, on disk or not."""
        if not self._topic.is_made:
            await self._workers.administer(self._topic.make)
            self._topic.find()
        async with self._changing:
            before = self._newest(key)
            stored = await self._append(key, decide(before), maker)
        await self._committed(stored)
        assert stored.cursor is not None, "a value was appended"
        return stored.cursor, before is None

    async def delete(self, key: CursorKey, judge: Callable[[Cursor], None]) -> None:
        """Judge by the latest record, on disk or not."""
        async with self._changing:
            before = self._newest(key)
            if before is None:
                raise no_such_cursor(key)
            judge(before)
            stored = await self._append(key, None)
        await self._committed(stored)
        self._forget([key])

    async def drop_topic(self, topic: str) -> None:
        """Delete them in several turns of the loop: there may be very many."""
        keys: list[CursorKey] = []
        for count, group in enumerate(tuple(self._groups.values()), start=1):
            keys += [
                key
                for key, versions in group.cursors.items()
                if key.topic == topic and versions[-1].value is not None
            ]
            if count % LOOKED_AT_TOGETHER == 0:
                await asyncio.sleep(0)
        latest: dict[int, Stored] = {}
        for key in keys:
            async with self._changing:
                stored = await self._append(key, None)
            latest[stored.log_partition] = stored
            await asyncio.sleep(0)
        for stored in latest.values():
            await self._committed(stored)
        self._forget(keys)

    # -- private steps -----------------------------------------------------------------------

    async def _append(
        self, key: CursorKey, value: CursorValue | None, maker: str = EVERYBODY
    ) -> Stored:
        """Append an offset, or None to delete it; return the record.

        The caller is inside `_changing`, and waits until the record is on disk. Raises
        PolicyViolation beyond the limits of groups and offsets, and what an append raises.
        """
        assert self._changing.locked(), "what is judged must be what is replaced"
        home = self._ensure_readable(key.group)
        group = self._groups.get(key.group)
        if group is None or key not in group.cursors:
            self._ensure_room(key.group, maker)
        now_ms = self._clock.now_ms()
        content = None if value is None else encode_value(value)
        batch = build_batch([(now_ms, encode_key(key), content, ())])
        append = partial(
            self._runtime.committer.append,
            self._topic.logs[home],
            batch,
            acks_all=True,
            wakes=False,
            checked=True,
        )
        try:
            appended = append(nonblocking=True)
        except WouldBlock:
            appended = await self._workers.write(append)
        self._commits.is_due = True
        stored = Stored(value, home, appended.base_offset)
        if key.group not in self._groups:
            self._groups[key.group] = _Group(home)
            self._makers_of_groups.add(maker, key.group)
        versions = self._groups[key.group].cursors.setdefault(key, [])
        if not versions:
            self._cursors_count += 1
            self._makers.add(maker, key)
        settled = self._on_disk(versions)
        if settled is not None:
            del versions[: versions.index(settled)]
        versions.append(stored)
        return stored

    async def _committed(self, stored: Stored) -> None:
        """Wait until a record is on disk; raises what `Commits.wait` does."""
        log = self._topic.logs[stored.log_partition]
        waiting = self._commits.wait(log, stored.record_offset + 1)
        if waiting is not None:
            await waiting

    def _forget(self, keys: Sequence[CursorKey]) -> None:
        """Remove offsets from memory whose deletion is on disk."""
        for key in keys:
            versions = self._versions(key)
            if versions and versions[-1].value is None and self._on_disk(versions) is versions[-1]:
                group = self._groups[key.group]
                del group.cursors[key]
                self._cursors_count -= 1
                self._makers.remove(key)
                if not group.cursors:
                    del self._groups[key.group]
                    self._makers_of_groups.remove(key.group)

    def _ensure_room(self, group: str, maker: str) -> None:
        limits = self._settings
        known = self._groups.get(group)
        if known is None and len(self._groups) >= limits.max_groups:
            raise _full("max_groups", limits.max_groups)
        if known is not None and len(known.cursors) >= limits.max_offsets_per_group:
            raise _full("max_offsets_per_group", limits.max_offsets_per_group)
        if self._cursors_count >= limits.max_group_offsets:
            raise _full("max_group_offsets", limits.max_group_offsets)
        if known is None:
            self._makers_of_groups.ensure_share(maker, len(self._groups))
        self._makers.ensure_share(maker, self._cursors_count)

    def _ensure_readable(self, group: str) -> int:
        """Return the log of a group; raises the error of reading it."""
        known = self._groups.get(group)
        home = self._topic.home_of(group) if known is None else known.home
        if home in self._failed:
            raise self._failed[home].with_traceback(None)
        return home

    def _newest(self, key: CursorKey) -> Cursor | None:
        """Return the latest record of an offset, on disk or not; None without one."""
        self._ensure_readable(key.group)
        versions = self._versions(key)
        return versions[-1].cursor if versions else None

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
            log = self._topic.logs[stored.log_partition]
            if stored.record_offset < log.watermarks.high_watermark:
                return stored
        return None


def _full(limit: str, value: int) -> PolicyViolation:
    return PolicyViolation(f"{limit} ({value}) is reached", limit=limit, limit_value=value)
