"""The newest offset of each key, in bounded memory: 24 bytes a key whatever its length.

A slot is the MD5 of a key and its offset, plus one so that an empty slot is all zeros. Thirteen
probes take overlapping 32-bit numbers from the digest, then the search goes on slot by slot. Two
keys with one digest would be taken for one, the risk that Kafka's `SkimpyOffsetMap` takes too.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from struct import Struct
from typing import Final

from engine.types import UNKNOWN_OFFSET, Buffer

_SLOT: Final = Struct(">16sQ")  # digest, offset + 1
SLOT_BYTES: Final = _SLOT.size

assert SLOT_BYTES == 24, "what Kafka needs for a key is the limit"

_INT32_PROBES: Final = 13  # digest bytes 0-3, 1-4, … 12-15


class OffsetMap:
    """Keys to offsets, insert or replace only. Not thread-safe.

    `latest_offset` is how far the log has been put into the map, inclusive: the caller moves it
    over what has no key. Memory that no slot was written in is never touched.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.slots_count = memory_bytes // SLOT_BYTES
        if self.slots_count < 1:
            raise ValueError(f"{memory_bytes} bytes are too few for a slot of {SLOT_BYTES}")
        self.latest_offset = UNKNOWN_OFFSET
        self._table = bytearray(self.slots_count * SLOT_BYTES)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """The share of slots in use."""
        return self._count / self.slots_count

    def put(self, key: Buffer, offset: int) -> None:
        """Remember `offset` as the newest of `key`. Raises OverflowError if every slot is taken."""
        if self._count >= self.slots_count:
            raise OverflowError("every slot of the offset map is taken")
        digest = md5(key, usedforsecurity=False).digest()
        # The first probe nearly always decides, so it is made without a call.
        position = int.from_bytes(digest[:4]) % self.slots_count * SLOT_BYTES
        found, stored = _SLOT.unpack_from(self._table, position)
        if stored and found != digest:
            position, stored = self._search(digest)
        if not stored:
            self._count += 1
        _SLOT.pack_into(self._table, position, digest, offset + 1)
        self.latest_offset = offset

    def get(self, key: Buffer) -> int:
        """Return the newest offset of `key`, or -1; terminates in a full map too."""
        digest = md5(key, usedforsecurity=False).digest()
        position = int.from_bytes(digest[:4]) % self.slots_count * SLOT_BYTES
        found, stored = _SLOT.unpack_from(self._table, position)
        if stored and found != digest:
            _, stored = self._search(digest)
        return int(stored) - 1

    def clear(self) -> None:
        """Forget everything."""
        self._table = bytearray(len(self._table))
        self._count = 0
        self.latest_offset = UNKNOWN_OFFSET

    def _search(self, digest: bytes) -> tuple[int, int]:
        """Return position and content of the key's slot or of the first empty one; (-1, 0) if none.

        The content is an offset plus one, so 0 says that the key is not there.
        """
        for position in self._later_positions(digest):
            found, stored = _SLOT.unpack_from(self._table, position)
            if not stored or found == digest:
                return position, stored
        return -1, 0

    def _later_positions(self, digest: bytes) -> Iterator[int]:
        """Yield where else the key may lie, every slot of the table at the latest."""
        count = self.slots_count
        for start in range(1, _INT32_PROBES):
            yield int.from_bytes(digest[start : start + 4]) % count * SLOT_BYTES
        last = int.from_bytes(digest[_INT32_PROBES - 1 :])
        for step in range(1, count + 1):
            yield (last + step) % count * SLOT_BYTES
