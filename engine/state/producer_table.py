"""The producers of one log by id, what all logs may have together, and their duplicate windows.

Clients choose their ids, so without a limit a client could fill the memory: the longest idle one is
removed first. Removing a producer has the effect of its expiry: its next append is accepted like
that of an unknown producer, and its retries are no longer recognised. Logs take from the room that
they share under their own locks and give nothing back: another thread counts the real use when the
rest is low.

`tidelog-producer-windows` in a partition directory holds the recent batches that Kafka's snapshots
leave out (docs/formats/producer-snapshot.md). A snapshot holds the last batch of each producer, but
a retry may be up to five batches old. This file holds all remembered batches of the producers with
more than one. A producer's batches are only used if the batch in the snapshot is among them: then
both files describe the same history, whichever is newer.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from crc32c import crc32c

from engine.errors import CorruptSnapshot, Overloaded
from engine.state.producer_entry import CACHED_BATCHES, BatchMetadata, ProducerEntry
from engine.state.transactions import OpenTransaction

_LOW_PART: Final = 10
"""The use is counted again when a tenth of the last rest is left."""


class SharedRoom:
    """The rest of a limit of all logs together. Thread-safe; its lock is a leaf."""

    def __init__(
        self, name: str, limit: int = sys.maxsize, on_low: Callable[[], object] = lambda: None
    ) -> None:
        """`on_low` is called under a log's lock; it schedules a call of `restock`."""
        self.limit: Final = limit
        self.name: Final = name
        self._on_low = on_low
        self._lock = threading.Lock()
        self._left = limit
        self._low = limit // _LOW_PART
        self._is_asked = False

    def take(self, amount: int) -> None:
        """Take an amount; raises Overloaded if less is left."""
        with self._lock:
            has_room = amount <= self._left
            if has_room:
                self._left -= amount
            asks = not self._is_asked and (not has_room or self._left <= self._low)
            self._is_asked = self._is_asked or asks
        if asks:
            self._on_low()
        if not has_room:
            raise Overloaded(
                f"{self.name} ({self.limit}) is reached in all logs together",
                limit=self.name,
                limit_value=self.limit,
            )

    def restock(self, held: int) -> None:
        """Set the rest from the counted use."""
        with self._lock:
            self._left = max(0, self.limit - held)
            self._low = self._left // _LOW_PART
            self._is_asked = False


VERSION: Final = 1

HEADER: Final = struct.Struct(
    ">"
    "h"  # version
    "I"  # crc    CRC-32C of everything after this field
    "i"  # count  batches that follow
)
BATCH: Final = struct.Struct(
    ">"
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # last_sequence
    "q"  # last_offset
    "i"  # offset_delta
    "q"  # timestamp
)
WINDOWS_HEADER_BYTES: Final = HEADER.size
CHECKED_POSITION: Final = struct.calcsize(">hI")
_COUNT = struct.Struct(">i")

assert HEADER.size == CHECKED_POSITION + _COUNT.size, "the checksum covers the count"

Windows: TypeAlias = Mapping[tuple[int, int], Sequence[BatchMetadata]]
"""The batches by producer id and epoch, in append order."""


def encode_windows(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of the file; empty if a snapshot holds everything."""
    packed = [
        BATCH.pack(entry.producer_id, entry.producer_epoch, *batch)
        for entry in entries
        if len(entry.batches) > 1
        for batch in entry.batches
    ]
    if not packed:
        return b""
    checked = _COUNT.pack(len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, crc32c(checked)) + checked


def decode_windows(content: bytes) -> Windows:
    """Return the content of the file; CorruptSnapshot if it is malformed."""
    if len(content) < HEADER.size:
        raise CorruptSnapshot(f"a file of duplicate windows has {len(content)} bytes")
    version, stored, count = HEADER.unpack_from(content)
    if version != VERSION or stored != crc32c(memoryview(content)[CHECKED_POSITION:]):
        raise CorruptSnapshot("the version or the checksum of the duplicate windows is wrong")
    if len(content) != HEADER.size + count * BATCH.size:
        raise CorruptSnapshot(f"{count} batches do not fit into {len(content)} bytes")
    windows: dict[tuple[int, int], list[BatchMetadata]] = {}
    for producer_id, epoch, *batch in BATCH.iter_unpack(memoryview(content)[HEADER.size :]):
        windows.setdefault((producer_id, epoch), []).append(BatchMetadata(*batch))
    return windows


def windows_of(entries: Iterable[ProducerEntry]) -> Windows:
    """Return the remembered batches of these producers."""
    return {(entry.producer_id, entry.producer_epoch): entry.batches for entry in entries}


def with_windows(entry: ProducerEntry, windows: Windows) -> ProducerEntry:
    """Return a producer's entry with its older batches from the windows added."""
    window = windows.get((entry.producer_id, entry.producer_epoch), ())
    if entry.batches and len(entry.batches) < CACHED_BATCHES:
        oldest = entry.batches[0]
        for index, batch in enumerate(window):
            if batch[:3] == oldest[:3]:  # the time may be that of a marker
                batches = (*window[: index + 1], *entry.batches[1:])
                return entry._replace(batches=batches[-CACHED_BATCHES:])
    return entry


class ProducerTable(OrderedDict[int, ProducerEntry]):
    """Producers in the order of their last append. Not thread-safe."""

    def __init__(self, max_producers: int) -> None:
        super().__init__()
        self._max_producers = max_producers

    def publish(self, entries: Mapping[int, ProducerEntry]) -> None:
        """Add these as the ones that appended last; remove others beyond the limit."""
        for producer_id, entry in entries.items():
            self[producer_id] = entry
            self.move_to_end(producer_id)
        if len(self) > self._max_producers:
            self._evict()

    def reach_back(self, windows: Windows) -> None:
        """Add older batches from the duplicate windows to the same producers."""
        for producer_id, entry in self.items():
            self[producer_id] = with_windows(entry, windows)

    def check_invariants(self, ongoing: Sequence[OpenTransaction], highest_id: int) -> None:
        """Fail unless entries and open transactions agree."""
        by_entries = {
            (entry.transaction_first_offset, entry.producer_id)
            for entry in self.values()
            if entry.transaction_first_offset is not None
        }
        by_transactions = {(open_.first.offset, open_.producer_id) for open_ in ongoing}
        assert by_entries == by_transactions, (by_entries, by_transactions)
        assert list(ongoing) == sorted(ongoing), ongoing
        for producer_id, entry in self.items():
            assert entry.producer_id == producer_id, (producer_id, entry)
            assert producer_id <= highest_id, (producer_id, highest_id)

    def _evict(self) -> None:
        """Remove idle producers beyond the limit, but none with an open transaction."""
        for _ in range(len(self)):
            producer_id, entry = next(iter(self.items()))
            if entry.transaction_first_offset is None:
                del self[producer_id]
                if len(self) <= self._max_producers:
                    return
            else:
                self.move_to_end(producer_id)
