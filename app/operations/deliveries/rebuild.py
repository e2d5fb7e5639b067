"""Finds deliveries in stored batches: in a topic's past, and in what other services write to it.

The memory of a topic's deliveries is rebuilt from its logs, from the newest record backwards. That
reads what was appended within the window, until it has as many deliveries as are remembered. All
work is in pieces that take some milliseconds, on reader threads, in turn with other readers. Only
batches that can have deliveries are decoded.

Logs to which other services write are followed. A repetition that reaches another service than the
first request is recognised as soon as the first one was read from the log.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol, Self, TypeVar

from app.codecs.delivery_headers import STATE_CHARACTERS, STATE_HEADER, Seal, State
from app.errors import ServiceError
from app.operations.deliveries.table import (
    ENTRY_BYTES,
    DeliveryTable,
    Entry,
    TopicMemory,
    seconds_of,
)
from app.operations.wait import Watch
from app.store.port import Partition
from engine.errors import (
    CorruptBatch,
    InvalidRecord,
    LogReplaced,
    NotFound,
    OffsetBelowLogStart,
    OffsetError,
    StorageError,
    StoredDataCorrupt,
    TooLarge,
)
from engine.records.batch import BatchView
from engine.records.header import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_2,
    Codec,
)
from engine.records.parts import records_of
from engine.records.varint import encode_varint
from engine.types import NO_PRODUCER_ID, Buffer, FetchIsolation

_LOG = logging.getLogger(__name__)

_NAME: Final = STATE_HEADER.encode()
_MARK: Final = encode_varint(len(_NAME)) + _NAME + encode_varint(STATE_CHARACTERS)
"""How the header begins in an uncompressed record."""


class Scanned(NamedTuple):
    """The log that is searched."""

    partition: int
    seal: Seal
    codec: Codec
    """The codec of the service's own batches in this log."""
    limit_bytes: int
    """The limit of one decompressed batch."""

    @classmethod
    def of(cls, partition: Partition, secret: bytes, limit_bytes: int) -> Self:
        seal = Seal(secret, partition.topic_id)
        return cls(partition.number, seal, partition.own_codec, limit_bytes)


def entries_in(data: Buffer, start_offset: int, log: Scanned) -> Iterator[Entry]:
    """Yield the deliveries in whole batches that begin at or after an offset.

    Only batches that the service can have built are decoded: without a producer, in the present
    format, uncompressed with the bytes of the header, or in the codec that the topic's batches get.
    A client's compressed batch would cost its decompression at each start. A batch that cannot be
    understood costs its own deliveries and nothing else.
    """
    content = data if isinstance(data, bytes | bytearray) else bytes(data)
    marked_at = content.find(_MARK)
    position, last = 0, len(content) - HEADER_BYTES
    while position <= last:
        # A log may have millions of batches: only these fields of each are looked at.
        base_offset, length, _, magic, _, attributes, _, _, _, producer_id, *_ = HEADER.unpack_from(
            content, position
        )
        batch_at, position = position, position + LOG_OVERHEAD_BYTES + max(0, length)
        if magic != MAGIC_2 or producer_id != NO_PRODUCER_ID or base_offset < start_offset:
            continue
        if attributes & CODEC_MASK not in {Codec.NONE, log.codec}:
            continue
        if not attributes & CODEC_MASK:
            if 0 <= marked_at < batch_at:
                marked_at = content.find(_MARK, batch_at)
            if not batch_at < marked_at < position:
                continue
        try:
            yield from _entries_of(BatchView(content, batch_at), log)
        except (CorruptBatch, InvalidRecord, TooLarge) as error:
            _LOG.warning(
                "deliveries in the batch at offset %d of partition %d may be forgotten: %s",
                base_offset,
                log.partition,
                error,
            )


def _entries_of(batch: BatchView, log: Scanned) -> Iterator[Entry]:
    found: Entry | None = None
    for record in records_of(batch, limit_bytes=log.limit_bytes):
        for name, content in record.headers:
            if name != STATE_HEADER:
                continue
            state = State.unpack(content, log.seal, record.key, record.value)
            if state is not None:
                if found is not None:
                    yield found
                found = Entry(
                    state.digest,
                    state.fingerprint,
                    record.offset,
                    record.timestamp,
                    state.records_count,
                    state.accepted_ms // 1000,
                    log.partition,
                    state.partitions,
                )
        if found is None or found.base_offset + found.records_count <= record.offset:
            continue
        if found.timestamp < record.timestamp:
            found = found._replace(timestamp=record.timestamp)
    if found is not None:
        yield found


LOOK_SECONDS: Final = 10.0
"""Longest time until partitions that were added are followed."""

RETRY_SECONDS: Final = 1.0
"""After a read that failed."""


class WatchLogs(Protocol):
    """Yields what wakes when one of the logs moves."""

    def __call__(self, logs: Sequence[Hashable], /) -> AbstractContextManager[Watch]: ...


class Partitions(Protocol):
    """The partitions of topics."""

    def open_partitions(self, topic: str) -> Sequence[Partition]:
        """Return those that can be used; raises TopicNotFound."""


class LogFollower:
    """Reads the logs of one topic from the memory's positions on, as they grow. Used once."""

    def __init__(
        self,
        memory: TopicMemory,
        *,
        partitions: Partitions,
        watch: WatchLogs,
        run: Run,
        max_batch_bytes: int,
        secret: bytes,
        on_found: Callable[[], None],
    ) -> None:
        """`on_found` follows each entry.

        `max_batch_bytes` limits one decompressed batch; `secret` authenticates what is found.
        """
        self._memory = memory
        self._partitions = partitions
        self._watch = watch
        self._run = run
        self._max_batch_bytes = max_batch_bytes
        self._secret = secret
        self._on_found = on_found

    async def run(self) -> None:
        """Follow until the topic is gone, or the task is cancelled."""
        memory = self._memory
        try:
            while True:
                partitions = self._partitions.open_partitions(memory.topic)
                if any(partition.topic_id != memory.topic_id for partition in partitions):
                    return
                with self._watch([partition.identity for partition in partitions]) as watch:
                    watch.wake_by(asyncio.get_running_loop().time() + LOOK_SECONDS)
                    while not watch.is_late:
                        await self._read_all(partitions)
                        if not any(map(self._has_more, partitions)):
                            await watch.wait()
                            await asyncio.sleep(0)  # a reader that is woken at once blocks no one
                            self._partitions.open_partitions(memory.topic)
        except (NotFound, LogReplaced):
            return  # the memory of a topic that is gone is forgotten

    async def _read_all(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            try:
                while self._has_more(partition):
                    await self._read(partition)
            except (ServiceError, StorageError) as error:
                _LOG.warning("deliveries to %s: %s", partition.topic_partition, error)
                await asyncio.sleep(RETRY_SECONDS)

    def _has_more(self, partition: Partition) -> bool:
        return self._position(partition) < partition.watermarks.high_watermark

    def _position(self, partition: Partition) -> int:
        return self._memory.positions.setdefault(partition.number, 0)

    async def _read(self, partition: Partition) -> None:
        positions, number = self._memory.positions, partition.number
        offset = self._position(partition)
        try:
            fetched = partition.read_now(offset, max_bytes=READ_BYTES) or await partition.read(
                offset, max_bytes=READ_BYTES, holder=HOLDER
            )
        except OffsetError:  # retention has removed some meanwhile
            positions[number] = max(offset + 1, partition.watermarks.log_start_offset)
            return
        except StoredDataCorrupt as error:
            positions[number] = end = partition.watermarks.high_watermark
            _LOG.warning(
                "deliveries of %s from offset %d to %d may be forgotten: %s",
                partition.topic_partition,
                offset,
                end,
                error,
            )
            return
        log = Scanned.of(partition, self._secret, self._max_batch_bytes)
        look = partial(_found_in, fetched.data, offset, log)
        for entry in await self._run(look, HOLDER):
            self._memory.found(entry)
            self._on_found()
        positions[number] = max(offset, fetched.next_offset)


def _found_in(data: Buffer, start_offset: int, log: Scanned) -> Sequence[Entry]:
    return list(entries_in(data, start_offset, log))


T = TypeVar("T")

READ_BYTES: Final = 1024 * 1024
"""Bytes of one read, and of one piece of decoding."""

RANGE_BYTES: Final = 16 * READ_BYTES
"""Bytes that are read forward before the range before them."""

HOLDER: Final = "deliveries"
"""Whose turn it is on the reader threads."""

_STEP_ENTRIES: Final = 4096


class Run(Protocol):
    """Runs work on a reader thread, in the holder's turn."""

    def __call__(self, work: Callable[[], T], holder: str) -> Awaitable[T]: ...


class Rebuild:
    """One rebuild. Used once."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        *,
        since_ms: int,
        max_entries: int,
        max_bytes: int,
        max_batch_bytes: int,
        secret: bytes,
        run: Run,
    ) -> None:
        """Read what was appended at or after `since_ms`, and at most `max_bytes`.

        `max_batch_bytes` limits one decompressed batch; `secret` authenticates what is found.
        """
        self._partitions = partitions
        self._since_ms = since_ms
        self._max_entries = max_entries
        self._left_bytes = max_bytes
        self._max_batch_bytes = max_batch_bytes
        self._secret = secret
        self._run = run
        self.ends: dict[int, int] = {}
        """By partition: where the rebuild ended."""

    async def table(self) -> DeliveryTable:
        """Return a table with the newest `max_entries`; raises as `Partition.read`."""
        found = []
        for index, partition in enumerate(self._partitions):
            allowance = self._left_bytes // (len(self._partitions) - index)
            found.append(await self._found_in(partition, allowance))
        table = DeliveryTable()
        total = sum(len(packed) for ranges in found for packed in ranges) // ENTRY_BYTES
        merged = heapq.merge(*map(_oldest_first, found), key=seconds_of)
        newest = islice(merged, max(0, total - self._max_entries), None)
        while await self._run(partial(_fill, table, newest), HOLDER):
            pass
        return table

    async def _found_in(self, partition: Partition, allowance: int) -> list[bytearray]:
        """Return the packed entries of one partition: of its newest range first."""
        await partition.refresh()
        end = partition.watermarks.log_end_offset
        await partition.committed(end)  # an append that is not on disk yet counts too
        self.ends[partition.number] = end
        start = await partition.offset_appended_since(self._since_ms)
        found: list[bytearray] = []
        count = 0
        for first, next_offset, size_bytes in await self._ranges(partition, start, end):
            if allowance <= 0:
                _LOG.warning(
                    "deliveries of %s before offset %d are forgotten: max_delivery_rebuild_bytes",
                    partition.topic_partition,
                    next_offset,
                )
                break
            if count >= self._max_entries:
                break
            packed = await self._read_range(partition, first, next_offset)
            allowance -= size_bytes
            self._left_bytes -= size_bytes
            count += len(packed) // ENTRY_BYTES
            found.append(packed)
        return found

    async def _ranges(
        self, partition: Partition, start: int, end: int
    ) -> Iterable[tuple[int, int, int]]:
        """Return ranges between batches, newest first: start, exclusive end and bytes."""
        start = max(start, partition.watermarks.log_start_offset)
        if start >= end:
            return ()
        isolation = FetchIsolation.HIGH_WATERMARK
        try:
            extent_bytes = await partition.extent_bytes(start, end, isolation)
            parts = extent_bytes // RANGE_BYTES + 1
            ranges = await partition.splits(
                start, end, isolation, parts=parts, max_offsets=None, at_most=parts
            )
        except OffsetBelowLogStart:  # retention has removed some meanwhile
            return await self._ranges(partition, start, end)
        return reversed(ranges)

    async def _read_range(self, partition: Partition, start: int, end: int) -> bytearray:
        packed = bytearray()
        offset = start
        while offset < end:
            try:
                fetched = await partition.read(
                    offset, max_bytes=READ_BYTES, end_offset=end, holder=HOLDER
                )
                log = Scanned.of(partition, self._secret, self._max_batch_bytes)
                decode = partial(_decoded, fetched.data, offset, log)
                packed += await self._run(decode, HOLDER)
            except OffsetBelowLogStart:
                offset = partition.watermarks.log_start_offset
                continue
            except StoredDataCorrupt as error:
                _LOG.warning(
                    "deliveries of %s from offset %d to %d may be forgotten: %s",
                    partition.topic_partition,
                    offset,
                    end,
                    error,
                )
                break
            offset = max(fetched.next_offset, offset + 1)
        return packed


def _decoded(data: Buffer, start_offset: int, log: Scanned) -> bytes:
    return b"".join([entry.pack() for entry in entries_in(data, start_offset, log)])


def _oldest_first(ranges: Sequence[bytearray]) -> Iterator[bytes]:
    for packed in reversed(ranges):
        for position in range(0, len(packed), ENTRY_BYTES):
            yield bytes(packed[position : position + ENTRY_BYTES])


def _fill(table: DeliveryTable, newest: Iterator[bytes]) -> bool:
    """Add some entries; return False if there are no more."""
    before = len(table)
    for packed in islice(newest, _STEP_ENTRIES):
        table.add(packed)
    return len(table) > before
