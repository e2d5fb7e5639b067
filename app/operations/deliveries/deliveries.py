"""Each delivery once: a repetition writes nothing and gets the first offsets.

A delivery id is in a header of the record that the delivery wrote; the memory of ids is rebuilt
from the log. So an id is as durable as its record: after a power failure both are there, or neither
is, and then the repetition writes the record.

An append claims its delivery, appends, notes what it wrote, and releases the claim. Another request
with the same id waits for that. A delivery over several partitions is one part in each: a
repetition writes only the parts that the log does not have.

A secret keys the digests of delivery ids. With it only this service can write a record header that
makes a delivery look like a repetition: clients can put any header into a raw batch.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Final, Protocol

from app.codecs.delivery_headers import Seal
from app.errors import Draining, IdempotencyKeyReused
from app.operations.deliveries.claim import Claim, Delivery
from app.operations.deliveries.rebuild import LogFollower, Rebuild, Run, WatchLogs
from app.operations.deliveries.table import DeliveryTable, Entry, TopicMemory
from app.operations.ingest.profiles import IngestProfile
from app.settings import Settings
from app.store.port import Documents, Partition
from engine.clock import Clock
from engine.errors import OffsetBeyondLogEnd, Recovering, TopicNotFound, WouldBlock

_DOCUMENT: Final = "deliveries"
_BYTES: Final = 32


async def delivery_secret(documents: Documents, changing: asyncio.Lock) -> bytes:
    """Return the secret; the first time, make one that is on disk on return.

    `changing` is held for changes of documents. Raises what `Documents.damaged` returns, and
    StorageError.
    """
    async with changing:
        stored = documents.all().get(_DOCUMENT)
        if stored is None:
            new = {"secret": secrets.token_bytes(_BYTES).hex()}
            stored = await documents.add(_DOCUMENT, new)  # another service may be first
    try:
        secret = binascii.unhexlify(str(stored.get("secret")))
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise documents.damaged(_DOCUMENT, f"its secret is not {_BYTES} bytes in hex")
    return secret


_LOG = logging.getLogger(__name__)

REBUILD: Final = "tidelog-deliveries"
"""The name of the task that rebuilds the memory of a topic."""

FOLLOW: Final = "tidelog-deliveries-follow"
"""The name of the task that reads what other services write."""

MAX_REBUILDS: Final = 2
"""Memories that are rebuilt at the same time."""

_base_offset: Final = attrgetter("base_offset")

_REMOVED_TOGETHER: Final = 64
"""Entries that one append removes at most."""


class Partitions(Protocol):
    """The partitions of topics, by name."""

    def partition(self, topic: str, number: int) -> Partition:
        """Return one partition; raises TopicNotFound, PartitionNotFound, LogOffline."""

    def open_partitions(self, topic: str) -> Sequence[Partition]:
        """Return those that can be used; raises TopicNotFound."""


class Deliveries:
    """The deliveries of all topics. Belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        partitions: Partitions,
        profile_of: Callable[[str], IngestProfile],
        secret: Callable[[], Awaitable[bytes]],
        run: Run,
        watch: WatchLogs,
    ) -> None:
        """`secret` returns the key of all digests; `run` runs work on a reader thread.

        `watch` wakes when logs move to which other services write too.
        """
        self._settings = settings
        self._clock = clock
        self._partitions = partitions
        self._profile_of = profile_of
        self.secret = secret
        self._secret: bytes | None = None
        self._run = run
        self._watch = watch
        self._memories: dict[str, TopicMemory] = {}
        """By topic id."""
        self._rebuilds = asyncio.Semaphore(MAX_REBUILDS)
        self._notes = 0
        self.repeated = 0
        """Repetitions since the start."""
        self.evicted = 0
        """What was forgotten within its window, because there was too much."""

    @property
    def _secret_made(self) -> bytes:
        assert self._secret is not None, "`claimed` asks for it before anything is read"
        return self._secret

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
            memory = TopicMemory(delivery.topic, delivery.topic_id)
            self._memories[delivery.topic_id] = memory
        if memory.table is None or self._secret is None:
            raise WouldBlock
        digest = delivery.digest(self._secret)
        if digest in memory.running:
            raise WouldBlock
        now_ms = self._clock.now_ms()
        entries = memory.table.find(digest)
        known = self._known(delivery, memory, entries, now_ms) if entries else {}
        memory.running[digest] = asyncio.Event()
        seal = Seal(self._secret, delivery.topic_id)
        return Claim(self.note, memory, delivery, seal, known=known, accepted_ms=now_ms)

    async def claimed(self, delivery: Delivery) -> Claim:
        """Claim a delivery; wait for another request with it, or for the memory.

        Raises Recovering if the memory is not rebuilt within `delivery_rebuild_timeout_ms`, what
        the rebuild raises, and IdempotencyKeyReused.
        """
        if self._secret is None:
            self._secret = await self.secret()
        while True:
            try:
                return self.claim(delivery)
            except WouldBlock:
                memory = self._memories[delivery.topic_id]
            if memory.table is None:
                await self._load(memory)
            else:
                await memory.running[delivery.digest(self._secret)].wait()

    def note(self, memory: TopicMemory, entry: Entry, log_epoch: int) -> None:
        """Remember what was written in this epoch; forget what is too old, or too much."""
        memory.note(entry, log_epoch)
        self._noted(memory)

    def _noted(self, memory: TopicMemory) -> None:
        if memory.table is not None:
            self._trim(memory.topic, memory.table)
        self._notes += 1
        if self._notes % _REMOVED_TOGETHER == 0:
            self._trim_all()

    def forget(self, topic: str) -> None:
        """Drop the memory of a deleted topic."""
        for memory in list(self._memories.values()):
            if memory.topic == topic:
                memory.stop()
                del self._memories[memory.topic_id]

    def close(self) -> None:
        """End all tasks."""
        for memory in self._memories.values():
            memory.stop()
            if memory.loading is not None:
                memory.loading.cancel()

    def _known(
        self, delivery: Delivery, memory: TopicMemory, entries: Sequence[Entry], now_ms: int
    ) -> dict[int, Entry]:
        """Return the entries that are within the window, by partition.

        Raises IdempotencyKeyReused; WouldBlock if one of the logs was truncated meanwhile.
        """
        since = self._since_seconds(self._profile_of(delivery.topic), now_ms)
        known: dict[int, Entry] = {}
        # The last one counts: the first record, not a copy of it that was appended raw.
        for entry in sorted(entries, key=_base_offset, reverse=True):
            if entry.seconds >= since:
                known[entry.partition] = entry
        for number, entry in known.items():
            partition = self._partitions.partition(delivery.topic, number)
            if memory.epochs[number] != partition.log_epoch:
                memory.unload()
                raise WouldBlock
            if delivery.fingerprint != entry.fingerprint:
                if delivery.header is None:
                    raise IdempotencyKeyReused("the delivery id was used for another body")
                raise IdempotencyKeyReused(
                    "the Idempotency-Key was used for another request", header=delivery.header
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
        excess = self.remembered - self._settings.max_deliveries
        if excess <= 0:
            return
        largest = max(self._tables(), key=len)
        for _ in range(min(excess, len(largest), 2 * _REMOVED_TOGETHER)):
            largest.remove_oldest()
            self.evicted += 1

    async def _load(self, memory: TopicMemory) -> None:
        """Wait until the memory is rebuilt, in a task of its own; raises Recovering."""
        if memory.loading is None:
            memory.loading = asyncio.create_task(self._rebuild(memory), name=REBUILD)
        wait_ms = self._settings.delivery_rebuild_timeout_ms
        done, _ = await asyncio.wait({memory.loading}, timeout=wait_ms / 1000)
        if not done:
            raise Recovering(
                f"the delivery ids of {memory.topic} are being read from its log; try again"
            )
        for task in done:
            if task.cancelled():
                raise Draining("the service is stopping")
            task.result()

    async def _rebuild(self, memory: TopicMemory) -> None:
        """Rebuild the table from the logs."""
        try:
            async with self._rebuilds:
                while memory.table is None:
                    with suppress(OffsetBeyondLogEnd):  # truncated meanwhile: read again
                        await self._rebuild_once(memory)
        except BaseException:
            self._memories.pop(memory.topic_id, None)
            raise
        finally:
            memory.loading = None

    async def _rebuild_once(self, memory: TopicMemory) -> None:
        settings, topic = self._settings, memory.topic
        partitions = self._partitions.open_partitions(topic)
        if any(partition.topic_id != memory.topic_id for partition in partitions):
            raise TopicNotFound(f"topic {topic} was deleted", topic=topic)
        profile = self._profile_of(topic)
        epochs = {partition.number: partition.log_epoch for partition in partitions}
        started_ms = self._clock.monotonic_ms()
        rebuild = Rebuild(
            partitions,
            since_ms=self._clock.now_ms() - profile.window_ms,
            max_entries=self._most(profile),
            max_bytes=settings.max_delivery_rebuild_bytes,
            max_batch_bytes=settings.max_decompressed_batch_bytes,
            secret=self._secret_made,
            run=self._run,
        )
        table = await rebuild.table()
        memory.publish(table, epochs)
        self._follow(memory, partitions, rebuild.ends)
        _LOG.info(
            "delivery ids read from the log",
            extra={
                "topic": topic,
                "deliveries": len(table),
                "duration_ms": self._clock.monotonic_ms() - started_ms,
            },
        )
        self._trim_all()

    def _follow(
        self, memory: TopicMemory, partitions: Sequence[Partition], ends: Mapping[int, int]
    ) -> None:
        """Read what other services write from now on, where any can."""
        if memory.table is None or all(partition.is_local for partition in partitions):
            return
        memory.positions.update(ends)
        follower = LogFollower(
            memory,
            partitions=self._partitions,
            watch=self._watch,
            run=self._run,
            max_batch_bytes=self._settings.max_decompressed_batch_bytes,
            secret=self._secret_made,
            on_found=partial(self._noted, memory),
        )
        memory.following = asyncio.create_task(follower.run(), name=FOLLOW)
