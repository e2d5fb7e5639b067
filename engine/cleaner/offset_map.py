"""The newest offset of each key, in bounded memory: 24 bytes per key, whatever its length.

A slot is the offset, plus one so that an empty slot is all zeros, and two hashes of the key. The
hashes are Python's own: SipHash with a secret of this process, which clients cannot make collide
and which costs a fraction of a digest. They need not be stable, because a map lives for one round.
The first probes jump by the second hash, then the search continues slot by slot. Two keys that
agree in all 128 bits would count as one: the same risk that Kafka's `SkimpyOffsetMap` takes with
MD5.
"""

from __future__ import annotations

import sys
from typing import Final

from engine.types import UNKNOWN_OFFSET

_SLOT_WORDS: Final = 3  # offset + 1, and the two hashes
SLOT_BYTES: Final = _SLOT_WORDS * 8

assert SLOT_BYTES == 24, "what Kafka needs for a key is the limit"
assert sys.hash_info.width == 64, "a hash fills a word of a slot"
assert sys.hash_info.algorithm.startswith("siphash"), "others can be made to collide"

_JUMPS: Final = 12
_SECOND: Final = b"\0"
"""The prefix for the second hash: it makes the two hashes of a key independent."""


class OffsetMap:
    """Keys to offsets, insert or replace only. Not thread-safe.

    `latest_offset` is the last offset of the log that the map covers; the caller also advances it
    past records without a key. Pages without a written slot are never touched.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.slots_count = memory_bytes // SLOT_BYTES
        if self.slots_count < 1:
            raise ValueError(f"{memory_bytes} bytes are too few for a slot of {SLOT_BYTES}")
        self.clear()

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> None:
        """Store `offset` as the newest of `key`. Raises OverflowError if every slot is taken."""
        if self._count >= self.slots_count:
            raise OverflowError("every slot of the offset map is taken")
        table = self._table
        first, second = hash(key), hash(_SECOND + key)
        position = self._search(first, second)
        if not table[position]:
            self._count += 1
            table[position + 1] = first
            table[position + 2] = second
        table[position] = offset + 1
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """Return the newest offset of `key`, or -1; terminates in a full map too."""
        position = self._search(hash(key), hash(_SECOND + key))
        return self._table[position] - 1 if position >= 0 else UNKNOWN_OFFSET

    def clear(self) -> None:
        """Forget everything."""
        self._table = memoryview(bytearray(self.slots_count * SLOT_BYTES)).cast("q")
        self._count = 0
        self.latest_offset = UNKNOWN_OFFSET

    def _search(self, first: int, second: int) -> int:
        """Return the position of the key's slot or of the first empty one; -1 if there is none.

        The first probes jump by the second hash, then every slot is tried.
        """
        table, count = self._table, self.slots_count
        position, probe = first % count * _SLOT_WORDS, 0
        while table[position]:
            if table[position + 1] == first and table[position + 2] == second:
                return position
            probe += 1
            if probe > _JUMPS + count:
                return -1
            step = probe * second if probe <= _JUMPS else probe - _JUMPS
            position = (first + step) % count * _SLOT_WORDS
        return position
