"""The newest offset of each key, in bounded memory: 24 bytes per key, whatever its length.

A slot is the offset, plus one so that an empty slot is all zeros, and two hashes of the key. The
hashes are Python's own: SipHash with a secret of this process, which clients cannot make collide
and which costs a fraction of a digest. They need not be stable, because a map lives for one round.
The first probes jump by the second hash, then the search continues slot by slot. Two keys that
agree in all 128 bits would count as one: the same risk that Kafka's `SkimpyOffsetMap` takes with
MD5.

A map is filled with the dirty keys of a log until it is full (`buildOffsetMap`). Control batches
and batches of aborted transactions are skipped: readers never see them, so they replace no older
record. A batch of an aborted transaction is removed at once. A marker must stay until no batch of
its transaction is left; otherwise readers and producer state would see a transaction without an
end (`CleanedTransactionMetadata`).
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from typing import Final

from engine.cleaner.reading import Pace, read_chunks, records_of
from engine.cleaner.selection import CleanableRange, overlapping, segments_from
from engine.config import CleanerConfig
from engine.log.maintenance import Compaction
from engine.log.read.aborted import aborted_in
from engine.records.batch import BatchView
from engine.records.control import ControlType, parse_control_type
from engine.records.header import BatchHeader
from engine.segment.segment import Segment, locate_surely
from engine.types import UNKNOWN_OFFSET, AbortedTransaction

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


class PassedTransactions:
    """Takes every batch once, ascending, and aborted transactions before their first batch."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, int, AbortedTransaction]] = []  # a heap by first offset
        self._expected: set[int] = set()  # by the offset of the marker
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer; the marker follows
        self._seen_aborted: set[int] = set()
        self._seen_committed: set[int] = set()
        self.still_aborted: list[AbortedTransaction] = []
        """Aborted transactions whose batches and marker were passed; the owner empties the list."""

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Announce aborted transactions; one that spans segments may be announced repeatedly."""
        for transaction in aborted:
            if transaction.last_offset not in self._expected:
                self._expected.add(transaction.last_offset)
                entry = (transaction.first_offset, transaction.last_offset, transaction)
                heapq.heappush(self._coming, entry)

    def pass_data(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        if producer_id in self._aborted:
            self._seen_aborted.add(producer_id)
            return True
        self._seen_committed.add(producer_id)
        return False

    def pass_control(self, batch: BatchView) -> bool:
        """Return whether the control batch can go: no data of its transaction is left."""
        header = batch.header
        self._begin_up_to(header.last_offset)
        record = next(batch.records(), None)
        if record is None:
            return True  # emptied by an earlier cleaning
        control_type = parse_control_type(record.key)
        if control_type is ControlType.ABORT:
            return not self._end_aborted(header.producer_id)
        if control_type is ControlType.COMMIT:
            was_seen = header.producer_id in self._seen_committed
            self._seen_committed.discard(header.producer_id)
            return not was_seen
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, _, transaction = heapq.heappop(self._coming)
            self._aborted[transaction.producer_id] = transaction

    def _end_aborted(self, producer_id: int) -> bool:
        """End the producer's aborted transaction; return whether a batch of it was passed."""
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._seen_aborted:
            return False
        self._seen_aborted.discard(producer_id)
        self.still_aborted.append(transaction)
        return True


def build_offset_map(
    compaction: Compaction, dirty: CleanableRange, config: CleanerConfig, pace: Pace
) -> OffsetMap:
    """Return the newest offsets of the keys from the first dirty offset on.

    `latest_offset` is the last offset covered; it lies further below the first uncleanable offset
    if the map is full. Raises StoredDataCorrupt, InvalidRecord, TooLarge, CleaningAborted.
    """
    start, end = dirty.first_dirty_offset, dirty.first_uncleanable_offset
    return _Indexing(compaction, config, start, end).run(pace)


class _Indexing:
    def __init__(self, compaction: Compaction, config: CleanerConfig, start: int, end: int) -> None:
        self._start = start
        self._end = end
        self._segments = overlapping(compaction.segments, start, end)
        self._chunk_bytes = config.chunk_bytes
        self._limit_bytes = compaction.context.config.max_decompressed_batch_bytes
        self._map = OffsetMap(_memory_bytes(config, end - start))
        self._map.latest_offset = min(start, end) - 1
        self._capacity = max(1, int(self._map.slots_count * config.io_buffer_load_factor))
        self._transactions = PassedTransactions()
        self._transactions.expect(aborted_in(segments_from(compaction.segments, start), start, end))

    def run(self, pace: Pace) -> OffsetMap:
        ends = (*(segment.base_offset for segment in self._segments[1:]), self._end)
        for segment, end_offset in zip(self._segments, ends, strict=False):
            if not self._index_segment(segment, end_offset, pace):
                break
            self._map.latest_offset = end_offset - 1  # includes a gap at the end
        return self._map

    def _index_segment(self, segment: Segment, end_offset: int, pace: Pace) -> bool:
        """Return whether there was room for all of the segment's keys."""
        first = locate_surely(segment, self._start)
        if first is None:
            return True
        for batches in read_chunks(
            segment, first.position, end_offset=end_offset, chunk_bytes=self._chunk_bytes, pace=pace
        ):
            for batch in batches:
                if not self._index_batch(batch):
                    return False
        return True

    def _index_batch(self, batch: BatchView) -> bool:
        header = batch.header
        if header.is_control:
            self._transactions.pass_control(batch)
        elif not self._transactions.pass_data(header) and not self._put_keys(batch):
            return False
        self._map.latest_offset = header.last_offset
        return True

    def _put_keys(self, batch: BatchView) -> bool:
        newest, start = self._map, self._start
        room = self._capacity - len(newest)
        for record in records_of(batch, self._limit_bytes):
            key = record.key
            if key is not None and record.offset >= start:
                if room <= 0:
                    room = self._capacity - len(newest)
                    if room <= 0:
                        return False
                newest.put(key, record.offset)
                room -= 1  # at most: the key may be in the map already
        return True


def _memory_bytes(config: CleanerConfig, offsets_count: int) -> int:
    """Return the memory for that many keys, within the configured bound."""
    needed = int(max(0, offsets_count) / config.io_buffer_load_factor) + 2
    return min(config.dedupe_buffer_bytes, needed * SLOT_BYTES)
