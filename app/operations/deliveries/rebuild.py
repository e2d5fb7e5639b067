"""Rebuilds the memory of a topic's deliveries from its logs, from the newest record backwards.

It reads what was appended within the window, until it has as many deliveries as are remembered. All
work is in pieces that take some milliseconds, on reader threads, in turn with other readers.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, Protocol, TypeVar

from app.operations.deliveries.scan import Scanned, entries_in
from app.operations.deliveries.table import ENTRY_BYTES, DeliveryTable, seconds_of
from app.store.port import Partition
from engine.errors import OffsetBelowLogStart, StoredDataCorrupt
from engine.types import Buffer, FetchIsolation

_LOG = logging.getLogger(__name__)

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
