"""Puts the dirty keys of a log into an offset map, until it is full. Kafka's `buildOffsetMap`.

Control batches and batches of aborted transactions are skipped: readers never see them, so they
replace no older record.
"""

from __future__ import annotations

from engine.cleaner.offset_map import SLOT_BYTES, OffsetMap
from engine.cleaner.reading import Pace, read_chunks, records_of
from engine.cleaner.selection import CleanableRange, overlapping, segments_from
from engine.cleaner.transactions import PassedTransactions
from engine.config import CleanerConfig
from engine.log.maintenance.compaction import Compaction
from engine.log.read.aborted import aborted_in
from engine.records.batch import BatchView
from engine.segment.segment import Segment, locate_surely


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
