"""The deliveries of one topic: those that are being written, and a table of those remembered.

The table is packed: 52 bytes a delivery, and 8 for the index. Entries are kept in the order in
which they were added, in chunks; the oldest is removed first. The index is an open-addressing hash
table of entry numbers. It is split into shards that grow one by one, so that no insertion takes
longer than a millisecond.
"""

from __future__ import annotations

import asyncio
from array import array
from struct import Struct
from typing import Final, NamedTuple

from app.codecs.delivery_headers import DIGEST_BYTES, FINGERPRINT_BYTES

_PACKED: Final = Struct(f"<{DIGEST_BYTES}s{FINGERPRINT_BYTES}sqqIIHH")
ENTRY_BYTES: Final = _PACKED.size
_SECONDS: Final = Struct("<I")
_SECONDS_AT: Final = 44

_CHUNK_BITS: Final = 7
_CHUNK_ENTRIES: Final = 1 << _CHUNK_BITS
_IN_CHUNK: Final = _CHUNK_ENTRIES - 1
_SHARD_BITS: Final = 10
_SHARDS: Final = 1 << _SHARD_BITS
_IN_SHARDS: Final = _SHARDS - 1
_SMALLEST_SHARD: Final = 4
_NUMBERS: Final = 2**32 - 1
"""Entries are numbered modulo this. A slot has the number plus one, and 0 if it is empty."""

_CHUNK_OVERHEAD_BYTES: Final = 80
_SHARD_OVERHEAD_BYTES: Final = 88


class Entry(NamedTuple):
    """The part of a delivery that is in one partition."""

    digest: bytes
    """Of the caller and the delivery id."""
    fingerprint: bytes
    """Of the request; zeros if bodies are not compared."""
    base_offset: int
    timestamp: int
    """That of the receipt."""
    records_count: int
    seconds: int
    """When the delivery was accepted, in seconds since the epoch."""
    partition: int
    partitions: int
    """The partitions that the topic had, if the server chose among them; otherwise 0."""

    def pack(self) -> bytes:
        """Return the entry as the table stores it."""
        return _PACKED.pack(*self)


def seconds_of(packed: bytes | bytearray, position: int = 0) -> int:
    """Return the time of a packed entry."""
    seconds: int = _SECONDS.unpack_from(packed, position + _SECONDS_AT)[0]
    return seconds


class DeliveryTable:
    """Entries by digest, and by age. One thread uses it at a time."""

    __slots__ = ("_base", "_chunks", "_counts", "_head", "_length", "_shards")

    def __init__(self) -> None:
        self._chunks: list[bytearray] = []
        self._base = 0
        """The number of the first entry of the first chunk."""
        self._head = 0
        """The place of the oldest entry; places count from the first chunk's first entry."""
        self._length = 0
        self._shards: list[array[int] | None] = [None] * _SHARDS
        self._counts = array("I", bytes(4 * _SHARDS))

    def __len__(self) -> int:
        return self._length

    @property
    def size_bytes(self) -> int:
        """The memory of entries and index."""
        index_bytes = sum(
            len(shard) * 4 + _SHARD_OVERHEAD_BYTES for shard in self._shards if shard is not None
        )
        chunk_bytes = _CHUNK_ENTRIES * ENTRY_BYTES + _CHUNK_OVERHEAD_BYTES
        return len(self._chunks) * chunk_bytes + index_bytes + 12 * _SHARDS

    def find(self, digest: bytes) -> list[Entry]:
        """Return all entries with this digest, in any order."""
        hashed = int.from_bytes(digest[:8], "little")
        shard = self._shards[hashed & _IN_SHARDS]
        if shard is None:
            return []
        mask = len(shard) - 1
        slot = (hashed >> _SHARD_BITS) & mask
        found = []
        while stored := shard[slot]:
            place = (stored - 1 - self._base) % _NUMBERS
            chunk, position = self._chunks[place >> _CHUNK_BITS], (place & _IN_CHUNK) * ENTRY_BYTES
            if chunk.startswith(digest, position):
                found.append(Entry._make(_PACKED.unpack_from(chunk, position)))
            slot = (slot + 1) & mask
        return found

    def add(self, packed: bytes) -> None:
        """Add a packed entry as the newest."""
        place = self._head + self._length
        if place >> _CHUNK_BITS == len(self._chunks):
            self._chunks.append(bytearray(_CHUNK_ENTRIES * ENTRY_BYTES))
        position = (place & _IN_CHUNK) * ENTRY_BYTES
        self._chunks[place >> _CHUNK_BITS][position : position + ENTRY_BYTES] = packed
        self._length += 1
        hashed = int.from_bytes(packed[:8], "little")
        number = hashed & _IN_SHARDS
        shard = self._shards[number]
        if shard is None or 3 * self._counts[number] >= 2 * len(shard):
            shard = self._grow(number)
        self._counts[number] += 1
        _put(shard, hashed, (self._base + place) % _NUMBERS + 1)

    def oldest_seconds(self) -> int:
        """Return the time of the oldest entry; there must be one."""
        return seconds_of(self._chunks[0], self._head * ENTRY_BYTES)

    def remove_oldest(self) -> None:
        """Remove the oldest entry; there must be one."""
        stored = (self._base + self._head) % _NUMBERS + 1
        hashed = self._hash_of(stored)
        number = hashed & _IN_SHARDS
        shard = self._shards[number]
        assert shard is not None, "the entry is in it"
        mask = len(shard) - 1
        slot = (hashed >> _SHARD_BITS) & mask
        while shard[slot] != stored:
            slot = (slot + 1) & mask
        self._close_gap(shard, slot)
        self._counts[number] -= 1
        if not self._counts[number]:
            self._shards[number] = None
        self._length -= 1
        self._head += 1
        if self._head == _CHUNK_ENTRIES:
            del self._chunks[0]
            self._head = 0
            self._base = (self._base + _CHUNK_ENTRIES) % _NUMBERS

    def _close_gap(self, shard: array[int], gap: int) -> None:
        """Empty a slot; move up what follows, so that every search still finds its entry."""
        mask = len(shard) - 1
        slot = gap
        while stored := shard[slot := (slot + 1) & mask]:
            home = (self._hash_of(stored) >> _SHARD_BITS) & mask
            if (slot - home) & mask >= (slot - gap) & mask:
                shard[gap] = stored
                gap = slot
        shard[gap] = 0

    def _hash_of(self, stored: int) -> int:
        place = (stored - 1 - self._base) % _NUMBERS
        position = (place & _IN_CHUNK) * ENTRY_BYTES
        return int.from_bytes(self._chunks[place >> _CHUNK_BITS][position : position + 8], "little")

    def _grow(self, number: int) -> array[int]:
        """Return the shard with twice the slots; about a thousand entries at most move."""
        old = self._shards[number]
        slots = _SMALLEST_SHARD if old is None else 2 * len(old)
        self._shards[number] = shard = array("I", bytes(4 * slots))
        for stored in old or ():
            if stored:
                _put(shard, self._hash_of(stored), stored)
        return shard


def _put(shard: array[int], hashed: int, stored: int) -> None:
    mask = len(shard) - 1
    slot = (hashed >> _SHARD_BITS) & mask
    while shard[slot]:
        slot = (slot + 1) & mask
    shard[slot] = stored


class TopicMemory:
    """The deliveries of one topic."""

    __slots__ = (
        "epochs",
        "following",
        "loading",
        "pending",
        "positions",
        "running",
        "table",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: str) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.table: DeliveryTable | None = None
        """None until it is rebuilt from the log."""
        self.epochs: dict[int, int] = {}
        """The log epoch of each partition. A truncation changes it: then the table is wrong."""
        self.positions: dict[int, int] = {}
        """By partition, for logs to which other services write too: what is below was read."""
        self.running: dict[bytes, asyncio.Event] = {}
        """The claimed deliveries, and what is set when the claim is released."""
        self.pending: list[tuple[Entry, int]] = []
        """What was written while there was no table, each with its log epoch."""
        self.loading: asyncio.Task[None] | None = None
        self.following: asyncio.Task[None] | None = None
        """Reads what other services write."""

    def note(self, entry: Entry, log_epoch: int) -> None:
        """Remember what was written in this epoch, unless it was read already."""
        if self.table is None:
            self.pending.append((entry, log_epoch))
        elif self.epochs.setdefault(entry.partition, log_epoch) != log_epoch:
            self.unload()
            self.pending.append((entry, log_epoch))
        elif entry.base_offset >= self.positions.get(entry.partition, 0):
            self.table.add(entry.pack())

    def found(self, entry: Entry) -> None:
        """Remember what was read from a log, unless it was noted already."""
        if self.table is not None and not _is_in(self.table, entry):
            self.table.add(entry.pack())

    def unload(self) -> None:
        """Have the table rebuilt."""
        self.table = None
        self.stop()

    def stop(self) -> None:
        """Follow the logs no more."""
        if self.following is not None:
            self.following.cancel()
            self.following = None

    def publish(self, table: DeliveryTable, epochs: dict[int, int]) -> None:
        """Use this table, unless a log was truncated and written to while it was rebuilt."""
        if any(epoch > epochs.get(entry.partition, epoch) for entry, epoch in self.pending):
            return
        for entry, epoch in self.pending:
            is_current = epochs.setdefault(entry.partition, epoch) == epoch
            if is_current and not _is_in(table, entry):
                table.add(entry.pack())
        self.pending.clear()
        self.epochs, self.table = epochs, table


def _is_in(table: DeliveryTable, entry: Entry) -> bool:
    place = (entry.partition, entry.base_offset)
    return any((one.partition, one.base_offset) == place for one in table.find(entry.digest))
