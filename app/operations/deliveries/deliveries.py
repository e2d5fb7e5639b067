"""Each delivery once: a repetition writes nothing and gets the first offsets.

A delivery id is in a header of the record that the delivery wrote; the memory of ids is rebuilt
from the log. So an id is as durable as its record: after a power failure both are there, or neither
is, and then the repetition writes the record.

An append claims its delivery, appends, notes what it wrote, and releases the claim. Another request
with the same id waits for that. A delivery over several partitions is one part in each: a
repetition writes only the parts that the log does not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from app.codecs.delivery_headers import (
    DIGEST_BYTES,
    FINGERPRINT_BYTES,
    ID_HEADER,
    STATE_HEADER,
    State,
)
from app.http.problems import IdempotencyKeyReused
from app.operations.deliveries.rebuild import Rebuild, Run
from app.operations.deliveries.table import DeliveryTable, Entry
from app.operations.ingest.profile import IngestProfile
from app.settings import Settings
from app.store.port import Partition
from engine.clock import Clock
from engine.errors import Recovering, TopicNotFound
from engine.guard import WouldBlock
from engine.log.results import Appended
from engine.records.builder import HeaderList, NewRecord, RecordColumns

_LOG = logging.getLogger(__name__)

MAX_REBUILDS: Final = 2
"""Memories that are rebuilt at the same time."""

_REMOVED_TOGETHER: Final = 64
"""Entries that one append removes at most."""

_NOT_COMPARED: Final = bytes(FINGERPRINT_BYTES)


class Delivery(NamedTuple):
    """What identifies a delivery to a topic."""

    topic: str
    topic_id: str
    digest: bytes
    fingerprint: bytes
    id: bytes


def delivery_of(
    partition: Partition, scope: bytes, delivery_id: bytes, fingerprint: bytes = _NOT_COMPARED
) -> Delivery:
    """Return the delivery with this id to the topic of a partition.

    Ids of different scopes are different. With a fingerprint, the same id with another one is
    refused. Of two ids with the same digest of 128 bits the second would be taken for a repetition.
    """
    named = b"%d %b%b" % (len(scope), scope, delivery_id)
    digest = blake2b(named, digest_size=DIGEST_BYTES, key=partition.topic_id.encode()).digest()
    return Delivery(partition.topic, partition.topic_id, digest, fingerprint, delivery_id)


def fingerprint_of(question: bytes, body: bytes | bytearray | memoryview) -> bytes:
    """Return the fingerprint of a request: its target and options, and its body."""
    hashed = blake2b(b"%d " % len(question), digest_size=FINGERPRINT_BYTES)
    hashed.update(question)
    hashed.update(body)
    return hashed.digest()


class Partitions(Protocol):
    """The partitions of topics, by name."""

    def partition(self, topic: str, number: int) -> Partition:
        """Return one partition; raises TopicNotFound, PartitionNotFound, LogOffline."""

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return all of them; raises TopicNotFound, LogOffline."""


class _Memory:
    """The deliveries of one topic."""

    __slots__ = ("epochs", "loading", "pending", "running", "table", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: str) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.table: DeliveryTable | None = None
        """None until it is rebuilt from the log."""
        self.epochs: dict[int, int] = {}
        """The leader epoch of each partition. A truncation changes it: then the table is wrong."""
        self.running: dict[bytes, asyncio.Event] = {}
        """The claimed deliveries, and what is set when the claim is released."""
        self.pending: list[tuple[Entry, int]] = []
        """What was written while there was no table, each with its leader epoch."""
        self.loading: asyncio.Task[None] | None = None

    def note(self, entry: Entry, leader_epoch: int) -> None:
        """Remember what was written under this epoch."""
        if self.table is None:
            self.pending.append((entry, leader_epoch))
        elif self.epochs.setdefault(entry.partition, leader_epoch) == leader_epoch:
            self.table.add(entry.pack())
        else:
            self.unload()
            self.pending.append((entry, leader_epoch))

    def unload(self) -> None:
        """Have the table rebuilt."""
        self.table = None

    def publish(self, table: DeliveryTable, epochs: dict[int, int]) -> None:
        """Use this table, unless a log was truncated and written to while it was rebuilt."""
        if any(epoch > epochs.get(entry.partition, epoch) for entry, epoch in self.pending):
            return
        for entry, epoch in self.pending:
            is_current = epochs.setdefault(entry.partition, epoch) == epoch
            known = table.find(entry.digest)
            if is_current and all(one.base_offset != entry.base_offset for one in known):
                table.add(entry.pack())
        self.pending.clear()
        self.epochs, self.table = epochs, table


class Claim:
    """The right to write one delivery, until `close`. Belongs to the event loop."""

    __slots__ = ("_accepted_ms", "_deliveries", "_delivery", "_memory", "known", "partitions")

    def __init__(
        self,
        deliveries: Deliveries,
        memory: _Memory,
        delivery: Delivery,
        known: Mapping[int, Entry],
        accepted_ms: int,
    ) -> None:
        self._deliveries = deliveries
        self._memory = memory
        self._delivery = delivery
        self._accepted_ms = accepted_ms
        self.known = known
        """The parts that are in the log, by partition."""
        self.partitions = next(iter(known.values())).partitions if known else 0
        """The partitions that the topic had the first time; 0 if it was not asked, or never."""

    def repeated(self, partition: Partition) -> Appended | None:
        """Return what the first request appended to the partition; None if it appended nothing.

        Wait for its commit before you answer, whatever the repetition's acks are.
        """
        part = self.known.get(partition.number)
        if part is None:
            return None
        return Appended(
            part.base_offset,
            part.base_offset + part.records_count - 1,
            part.records_count,
            part.timestamp,
            True,
            partition.watermarks,
            partition.tag,
        )

    @property
    def sticky_partition(self) -> int:
        """The partition for records without a key: a repetition gets the same."""
        return int.from_bytes(self._delivery.digest[8:]) % max(1, self.partitions)

    def choose_among(self, partitions: int) -> int:
        """Return the number of partitions among which the server chooses.

        It is that of the first time, even if the topic has more now: a repetition must meet the
        same partitions.
        """
        self.partitions = self.partitions or partitions
        return self.partitions

    def mark(self, records: list[NewRecord] | RecordColumns) -> None:
        """Put the delivery's headers on the first of the records for one partition."""
        delivery = self._delivery
        state = State(
            delivery.digest, delivery.fingerprint, self._accepted_ms, len(records), self.partitions
        )
        headers: HeaderList = [(ID_HEADER, delivery.id), (STATE_HEADER, state.pack())]
        if isinstance(records, RecordColumns):
            first, *others = records.headers or [[]] * len(records)
            records.headers = [first + headers, *others]
        else:
            timestamp, key, value, own = records[0]
            records[0] = (timestamp, key, value, [*own, *headers])

    def written(self, partition: Partition, appended: Appended) -> None:
        """Note a part that is in the log now."""
        delivery = self._delivery
        entry = Entry(
            delivery.digest,
            delivery.fingerprint,
            appended.base_offset,
            appended.timestamp,
            appended.records_count,
            self._accepted_ms // 1000,
            partition.number,
            self.partitions,
        )
        self._deliveries.note(self._memory, entry, appended.tag.leader_epoch)

    def close(self) -> None:
        """Release the claim."""
        released = self._memory.running.pop(self._delivery.digest, None)
        if released is not None:
            released.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Deliveries:
    """The deliveries of all topics. Belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        partitions: Partitions,
        profile_of: Callable[[str], IngestProfile],
        run: Run,
    ) -> None:
        """`run` runs work on a reader thread."""
        self._settings = settings
        self._clock = clock
        self._partitions = partitions
        self._profile_of = profile_of
        self._run = run
        self._memories: dict[str, _Memory] = {}
        """By topic id."""
        self._rebuilds = asyncio.Semaphore(MAX_REBUILDS)
        self._notes = 0
        self.repeated = 0
        """Repetitions since the start."""
        self.evicted = 0
        """What was forgotten within its window, because there was too much."""

    def _tables(self) -> list[DeliveryTable]:
        tables = [memory.table for memory in self._memories.values()]
        return [table for table in tables if table is not None]

    @property
    def remembered(self) -> int:
        """The deliveries in memory; one in several partitions counts in each."""
        return sum(map(len, self._tables()))

    @property
    def size_bytes(self) -> int:
        """The memory of all tables."""
        return sum(table.size_bytes for table in self._tables())

    def claim(self, delivery: Delivery) -> Claim:
        """Claim a delivery without waiting. Close the claim.

        Raises WouldBlock if the caller has to wait, in `claimed`; IdempotencyKeyReused if the first
        request had another fingerprint.
        """
        memory = self._memories.get(delivery.topic_id)
        if memory is None:
            memory = _Memory(delivery.topic, delivery.topic_id)
            self._memories[delivery.topic_id] = memory
        digest = delivery.digest
        if memory.table is None or digest in memory.running:
            raise WouldBlock
        now_ms = self._clock.now_ms()
        entries = memory.table.find(digest)
        known = self._known(delivery, memory, entries, now_ms) if entries else {}
        memory.running[digest] = asyncio.Event()
        return Claim(self, memory, delivery, known, now_ms)

    async def claimed(self, delivery: Delivery) -> Claim:
        """Claim a delivery; wait for another request with it, or for the memory.

        Raises Recovering if the memory is not rebuilt within `delivery_rebuild_timeout_ms`, what
        the rebuild raises, and IdempotencyKeyReused.
        """
        while True:
            try:
                return self.claim(delivery)
            except WouldBlock:
                memory = self._memories[delivery.topic_id]
            if memory.table is None:
                await self._load(memory)
            else:
                await memory.running[delivery.digest].wait()

    def note(self, memory: _Memory, entry: Entry, leader_epoch: int) -> None:
        """Remember what was written under this epoch; forget what is too old, or too much."""
        memory.note(entry, leader_epoch)
        if memory.table is not None:
            self._trim(memory.topic, memory.table)
        self._notes += 1
        if self._notes % _REMOVED_TOGETHER == 0:
            self._trim_all()

    def forget(self, topic: str) -> None:
        """Drop the memory of a deleted topic."""
        for memory in list(self._memories.values()):
            if memory.topic == topic:
                self._drop(memory)

    def close(self) -> None:
        """End all rebuilds."""
        for memory in list(self._memories.values()):
            self._drop(memory)

    def _drop(self, memory: _Memory) -> None:
        self._memories.pop(memory.topic_id, None)
        if memory.loading is not None:
            memory.loading.cancel()

    def _known(
        self, delivery: Delivery, memory: _Memory, entries: Sequence[Entry], now_ms: int
    ) -> dict[int, Entry]:
        """Return the entries that are within the window, by partition.

        Raises IdempotencyKeyReused; WouldBlock if one of the logs was truncated meanwhile.
        """
        since = self._since_seconds(self._profile_of(delivery.topic), now_ms)
        known = {entry.partition: entry for entry in entries if entry.seconds >= since}
        for number, entry in known.items():
            partition = self._partitions.partition(delivery.topic, number)
            if memory.epochs[number] != partition.leader_epoch:
                memory.unload()
                raise WouldBlock
            fingerprints = {delivery.fingerprint, entry.fingerprint}
            if len(fingerprints) > 1 and _NOT_COMPARED not in fingerprints:
                raise IdempotencyKeyReused(
                    "the Idempotency-Key was used for another request", header="idempotency-key"
                )
        self.repeated += bool(known)
        return known

    @staticmethod
    def _since_seconds(profile: IngestProfile, now_ms: int) -> int:
        """Return the time of the oldest deliveries within the window."""
        return (now_ms - profile.window_ms) // 1000

    def _trim(self, topic: str, table: DeliveryTable) -> None:
        """Forget what is too old or too much of one topic; not all of it at once."""
        profile = self._profile_of(topic)
        since = self._since_seconds(profile, self._clock.now_ms())
        most = self._most(profile)
        for _ in range(min(len(table), _REMOVED_TOGETHER)):
            if table.oldest_seconds() >= since:
                if len(table) <= most:
                    break
                self.evicted += 1
            table.remove_oldest()

    def _most(self, profile: IngestProfile) -> int:
        return min(profile.window_deliveries, self._settings.max_deliveries)

    def _trim_all(self) -> None:
        """Forget the oldest of the largest table, if all together are too many."""
        tables = self._tables()
        largest = max(tables, key=len, default=None)
        if largest is None:
            return
        excess = sum(map(len, tables)) - self._settings.max_deliveries
        for _ in range(min(excess, len(largest), 2 * _REMOVED_TOGETHER)):
            largest.remove_oldest()
            self.evicted += 1

    async def _load(self, memory: _Memory) -> None:
        """Wait until the memory is rebuilt, in a task of its own; raises Recovering."""
        if memory.loading is None:
            memory.loading = asyncio.create_task(self._rebuild(memory))
        wait_ms = self._settings.delivery_rebuild_timeout_ms
        done, _ = await asyncio.wait({memory.loading}, timeout=wait_ms / 1000)
        if not done:
            raise Recovering(
                f"the delivery ids of {memory.topic} are being read from its log; try again"
            )
        for task in done:
            task.result()

    async def _rebuild(self, memory: _Memory) -> None:
        """Rebuild the table from the logs."""
        try:
            async with self._rebuilds:
                while memory.table is None:
                    await self._rebuild_once(memory)
        except BaseException:
            self._memories.pop(memory.topic_id, None)
            raise
        finally:
            memory.loading = None

    async def _rebuild_once(self, memory: _Memory) -> None:
        settings, topic = self._settings, memory.topic
        partitions = self._partitions.partitions(topic)
        if any(partition.topic_id != memory.topic_id for partition in partitions):
            raise TopicNotFound(f"topic {topic} was deleted", topic=topic)
        profile = self._profile_of(topic)
        epochs = {partition.number: partition.leader_epoch for partition in partitions}
        started_ms = self._clock.monotonic_ms()
        rebuild = Rebuild(
            partitions,
            since_ms=self._clock.now_ms() - profile.window_ms,
            max_entries=self._most(profile),
            max_bytes=settings.max_delivery_rebuild_bytes,
            max_batch_bytes=settings.max_decompressed_batch_bytes,
            run=self._run,
        )
        table = await rebuild.table()
        memory.publish(table, epochs)
        _LOG.info(
            "delivery ids read from the log",
            extra={
                "topic": topic,
                "deliveries": len(table),
                "duration_ms": self._clock.monotonic_ms() - started_ms,
            },
        )
        self._trim_all()
