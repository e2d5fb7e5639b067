"""Group offsets in memory and in the log.

The log is the truth. An offset is one record of the compacted topic `__consumer_offsets`. Memory
holds the last record of each key, and the records that are not on disk yet. A look-up decides by
the log's high watermark which of them counts: a reader never sees an offset that a power failure
can remove, and a flush needs no notification.

A cursor is a key and a value in Kafka's own schemas:

    key    int16 version (0, 1), string group, string topic, int32 partition
    value  int16 version (0 to 4), int64 offset, [3+] int32 leader epoch, string metadata,
           int64 commit time in ms, [1] int64 expiry time in ms

A string is an int16 length and UTF-8; from value version 4 on an unsigned varint of length + 1, and
tagged fields follow the last one. Keys of higher versions (2 is the membership of a classic group)
belong to the broker that wrote them. Mirrors Kafka's `OffsetCommitKey`, `LegacyOffsetCommitKey` and
`OffsetCommitValue`; written are key 1 and value 3, which every broker since 2.1 reads.

A broker's consumers may have stored offsets inside transactions. Those count from the commit marker
on, and then in log order, as in Kafka's `OffsetMetadataManager`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from app.limits.executors import Workers
from app.limits.shares import EVERYBODY, Makers
from app.settings import Settings
from app.store.local.commits import Commits
from app.store.port import Cursor, CursorKey, CursorValue, GroupOffsets, no_such_cursor
from engine.clock import Clock
from engine.errors import EngineError, PartitionNotFound, PolicyViolation, WouldBlock
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.records.batch import BatchView
from engine.records.builder import build_batch
from engine.records.control import parse_end_marker
from engine.records.scan import iter_headers
from engine.runtime import Runtime
from engine.types import INT32_MAX, NO_LEADER_EPOCH, TopicPartition

KEY_VERSION: Final = 1
KEY_VERSIONS: Final = range(2)
VALUE_VERSION: Final = 3
VALUE_VERSIONS: Final = range(5)
FIRST_WITH_EPOCH: Final = 3
FIRST_FLEXIBLE: Final = 4

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class UnreadableCursor(ValueError):
    """A record of the offsets topic that matches no version of its schema."""


def encode_key(key: CursorKey) -> bytes:
    """Return the key of an offset's record; each string has at most 32,767 bytes."""
    return b"".join(
        (
            _INT16.pack(KEY_VERSION),
            _string(key.group),
            _string(key.topic),
            _INT32.pack(key.partition),
        )
    )


def encode_value(value: CursorValue) -> bytes:
    """Return the value of an offset's record; the metadata has at most 32,767 bytes."""
    return b"".join(
        (
            _INT16.pack(VALUE_VERSION),
            _INT64.pack(value.offset),
            _INT32.pack(value.leader_epoch),
            _string(value.metadata),
            _INT64.pack(value.commit_timestamp),
        )
    )


def decode_key(content: bytes) -> CursorKey | None:
    """Return the offset that a key belongs to; None for a broker's other records.

    Raises UnreadableCursor.
    """
    fields = _Fields(content)
    if fields.number(_INT16) not in KEY_VERSIONS:
        return None
    return CursorKey(fields.string(), fields.string(), fields.number(_INT32))


def decode_value(content: bytes) -> CursorValue:
    """Return the offset that a value stores; raises UnreadableCursor."""
    fields = _Fields(content)
    version = fields.number(_INT16)
    if version not in VALUE_VERSIONS:
        raise UnreadableCursor(f"unknown version {version} of a cursor")
    offset = fields.number(_INT64)
    epoch = fields.number(_INT32) if version >= FIRST_WITH_EPOCH else NO_LEADER_EPOCH
    metadata = fields.compact_string() if version >= FIRST_FLEXIBLE else fields.string()
    return CursorValue(offset, epoch, metadata, fields.number(_INT64))


def partition_of_group(group: str, partitions: int) -> int:
    """Return the partition of a group: `Utils.abs(group.hashCode()) % partitions`, as in Kafka."""
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", group.encode("utf-16-be", "surrogatepass")):
        hashed = (hashed * 31 + unit) & 0xFFFF_FFFF
    signed = hashed - 2**32 if hashed > INT32_MAX else hashed
    return 0 if signed == -(2**31) else abs(signed) % partitions


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


class _Fields:
    """Reads the fields of a record in order."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def number(self, kind: struct.Struct) -> int:
        number: int = kind.unpack(self._take(kind.size))[0]
        return number

    def string(self) -> str:
        return self._text(self.number(_INT16))

    def compact_string(self) -> str:
        size = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                return self._text(size - 1)
        raise UnreadableCursor("the length of a string of a cursor is not terminated")

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise UnreadableCursor("a string of a cursor is not UTF-8") from None

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise UnreadableCursor("a cursor ends inside one of its fields")
        taken = self._content[self._position : end]
        self._position = end
        return taken


_LOG = logging.getLogger(__name__)

READ_BYTES: Final = 4 * 1024 * 1024

_CURSOR_KEYS: Final = (b"\x00\x00", b"\x00\x01")
"""Key versions of group offsets; records with other keys are skipped unread."""

_Latest: TypeAlias = dict[bytes, tuple[int, bytes | None]]
"""The offset and the value of the last record of each key."""


class Stored(NamedTuple):
    """A group offset and the record that stores it: partition and offset in the offsets topic."""

    value: CursorValue | None
    """None: a deletion that is not on disk yet."""
    log_partition: int
    record_offset: int

    @property
    def cursor(self) -> Cursor | None:
        """The offset as the port shows it; its ETag lasts as long as the topic exists."""
        if self.value is None:
            return None
        return Cursor(self.value, f'"{self.log_partition}-{self.record_offset}"')


def load_cursors(log: Log, *, limit_bytes: int) -> dict[CursorKey, Stored]:
    """Return the group offsets in one log of the topic; raises StorageError, CorruptBatch.

    Reads the whole log, a few MiB at a time, and keeps one value per key; compaction keeps the log
    small. A record that matches no version of the schema is skipped and logged.
    """
    number = log.topic_partition.partition
    cursors: dict[CursorKey, Stored] = {}
    for raw_key, (offset, raw_value) in _replay(log, limit_bytes).items():
        try:
            key = decode_key(raw_key)
            if key is not None and raw_value is not None:
                cursors[key] = Stored(decode_value(raw_value), number, offset)
        except UnreadableCursor as error:
            _LOG.warning("%s, offset %d: %s", log.topic_partition, offset, error)
    return cursors


def _replay(log: Log, limit_bytes: int) -> _Latest:
    replay = _Replay(limit_bytes)
    offset = log.watermarks.log_start_offset
    while offset < log.watermarks.high_watermark:
        fetched = log.reader.read(offset, max_bytes=READ_BYTES)
        assert fetched is not None, "only a read of cached bytes may find nothing"
        for position, _ in iter_headers(fetched.data):
            replay.add(BatchView(fetched.data, position))
        offset = fetched.next_offset
    return replay.settled


class _Replay:
    """The values so far, and those of open transactions."""

    def __init__(self, limit_bytes: int) -> None:
        self.settled: _Latest = {}
        self._pending: dict[int, _Latest] = {}
        self._limit_bytes = limit_bytes

    def add(self, batch: BatchView) -> None:
        header = batch.header
        if header.is_control:
            self._end(batch)
            return
        latest = self.settled
        if header.is_transactional:
            latest = self._pending.setdefault(header.producer_id, {})
        for record in batch.records(limit_bytes=self._limit_bytes):
            key = record.key
            if key is not None and key.startswith(_CURSOR_KEYS):
                latest[key] = record.offset, record.value

    def _end(self, batch: BatchView) -> None:
        marker = parse_end_marker(batch)
        if marker is None:
            return
        written = self._pending.pop(batch.header.producer_id, {})
        if marker.is_abort:
            return
        for key, latest in written.items():
            known = self.settled.get(key)
            if known is None or known[0] < latest[0]:
                self.settled[key] = latest


OFFSETS_TOPIC: Final = "__consumer_offsets"

CONFIGURATION: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "4194304",
}
"""Kafka's `GroupCoordinatorConfig.offsetTopicConfigs`, with smaller segments than its 100 MiB.

The active segment is never compacted, and each start reads all of it: 4 MiB have some 45,000
commits, which take less than a second."""


class OffsetsTopic:
    """The logs of the topic, by partition; an adopted directory has only some of them."""

    def __init__(self, manager: LogManager, *, partitions: int) -> None:
        self._manager = manager
        self._partitions = partitions
        self.logs: dict[int, Log] = {}
        self._partitions_known = 0
        """Partitions of the topic, open or not."""
        self.is_made = False
        """Whether the topic exists and is compacted, so that offsets can be stored."""

    def find(self) -> None:
        """Use the topic if it exists."""
        topic = self._manager.topics().get(OFFSETS_TOPIC)
        if topic is None:
            return
        self.logs = {
            log.topic_partition.partition: log
            for log in sorted(self._manager.logs(), key=lambda log: log.topic_partition)
            if log.topic_partition.topic == OFFSETS_TOPIC
        }
        self._partitions_known = topic.partitions
        self.is_made = "cleanup.policy" in topic.overrides

    def make(self) -> None:
        """Create the topic, or enable compaction of a broker's; for a worker thread.

        It gets the configuration that every broker gives it. Raises what `create_topic` does.
        """
        topic = self._manager.topics().get(OFFSETS_TOPIC)
        if topic is None:
            self._manager.create_topic(
                OFFSETS_TOPIC, self._partitions, CONFIGURATION, internal=True
            )
        elif "cleanup.policy" not in topic.overrides:
            self._manager.update_topic(OFFSETS_TOPIC, CONFIGURATION, internal=True)

    def ensure_whole(self) -> None:
        """Raise LogOffline or StorageOffline if groups may be in a log that was not opened."""
        for number in range(self._partitions_known):
            if number not in self.logs:
                with contextlib.suppress(PartitionNotFound):  # of an adopted directory
                    self._manager.log(TopicPartition(OFFSETS_TOPIC, number))

    def home_of(self, group: str) -> int:
        """Return the partition of a new group's records: the one that Kafka would use, or another.

        Raises LogOffline if that one's directory is offline: its offsets will be back.
        """
        if not self.logs:
            return 0
        number = partition_of_group(group, self._manager.topic(OFFSETS_TOPIC).partitions)
        if number not in self.logs:
            with contextlib.suppress(PartitionNotFound):
                self._manager.log(TopicPartition(OFFSETS_TOPIC, number))
            number = list(self.logs)[number % len(self.logs)]
        return number


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
        self._topic.ensure_whole()
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

    async def positions(self, group: str, keys: Sequence[CursorKey]) -> Mapping[CursorKey, int]:
        """Wait until the latest records of these offsets are on disk."""
        async with self._changing:
            found = [(key, versions[-1]) for key in keys if (versions := self._versions(key))]
        self._ensure_readable(group)
        for _, stored in found:
            await self._committed(stored)
        return {key: stored.value.offset for key, stored in found if stored.value is not None}

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
