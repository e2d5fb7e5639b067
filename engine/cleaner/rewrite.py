"""What compaction keeps of one batch, and how it rewrites a group of segments into one.

A record of a data batch is removed if the map has a newer one of its key, if it has no key, or if
it is a tombstone past its delete horizon. A tombstone gets its delete horizon when a pass keeps it
for the first time; a marker gets one when no data of its transaction is left. So a reader that
keeps up sees every delete. Emptied batches stay as bare headers while their offset or sequence is
needed. Mirrors the record filter of Kafka's `Cleaner` and `MemoryRecords.filterTo`.

The two batches that only compaction writes, with some of the records and with none, keep base
offset, last offset, producer, epoch and sequence of the batch they replace, so that duplicates are
still recognised (`MemoryRecords.buildRetainedRecordsInto`, `DefaultRecordBatch.writeEmptyHeader`).

The survivors are copied, sealed, synced and swapped in. Index entries are written batch by batch,
as current brokers do (`Cleaner.cleanSegments`, `cleanInto`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from engine.cleaner.offset_map import OffsetMap, PassedTransactions
from engine.cleaner.reading import Pace, StoredRecord, read_chunks, records_of
from engine.cleaner.selection import segments_from
from engine.errors import SegmentOverflow, StorageError
from engine.log.maintenance import CleaningAborted, Compaction
from engine.log.read.aborted import aborted_in
from engine.records.batch import BatchView, stamp_crc
from engine.records.builder import encode_batch
from engine.records.compiled import new_builder
from engine.records.compression import compress
from engine.records.header import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_2,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Codec,
    TimestampType,
    pack_header,
    parse_header,
)
from engine.records.record import Record
from engine.segment.segment import Segment
from engine.types import INT32_MAX, NO_TIMESTAMP, Buffer, OffsetPosition

_KINDS_MASK: Final = TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK


def empty_batch(header: BatchHeader) -> bytearray:
    """Return the header alone, without records, codec and delete horizon."""
    return _assembled(
        header._replace(
            attributes=header.attributes & _KINDS_MASK,
            base_timestamp=NO_TIMESTAMP,
            records_count=0,
        ),
        bytearray(HEADER_BYTES),
    )


def rewritten_batch(
    header: BatchHeader, records: Sequence[StoredRecord], horizon_ms: int | None
) -> bytearray:
    """Return the batch with only these of its records, ascending, at least one.

    Every record keeps offset, time and content. The delete horizon, if there is one, takes the
    place of the base timestamp, and times count from there.
    """
    attributes = header.attributes & (CODEC_MASK | _KINDS_MASK)
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max(NO_TIMESTAMP, *(record.timestamp for record in records))
    new = header._replace(
        attributes=attributes if horizon_ms is None else attributes | DELETE_HORIZON_MASK,
        base_timestamp=records[0].timestamp if horizon_ms is None else horizon_ms,
        max_timestamp=max_timestamp,
        records_count=len(records),
    )
    if new.base_timestamp < 0:  # which the compiled builder reads as "no timestamp"
        return encode_batch(
            new,
            (Record(one.offset, one.timestamp, one.key, one.value, one.headers) for one in records),
        )
    batch = _encoded(new, records)
    if header.codec is not Codec.NONE:
        batch[HEADER_BYTES:] = compress(header.codec, batch[HEADER_BYTES:])
    return _assembled(new, batch)


def _encoded(header: BatchHeader, records: Sequence[StoredRecord]) -> bytearray:
    """Return the uncompressed records after 61 bytes for the header.

    The compiled builder takes the base timestamp from the first record. If the batch has a delete
    horizon, a placeholder with that time comes first and is cut off again.
    """
    builder = new_builder()
    append = builder.append
    start = HEADER_BYTES
    base_offset = header.base_offset
    if header.attributes & DELETE_HORIZON_MASK:
        append(0, header.base_timestamp, None, None, [])
        start = builder.size()
    for record in records:
        headers = record.headers
        if type(headers) is not list:
            headers = list(headers)
        append(record.offset - base_offset, record.timestamp, record.key, record.value, headers)
    batch = builder.build()
    del batch[HEADER_BYTES:start]
    return batch


def _assembled(header: BatchHeader, batch: bytearray) -> bytearray:
    """Return the batch with this header in front of its records, in place."""
    size_bytes = len(batch)
    batch[:HEADER_BYTES] = pack_header(header._replace(length=size_bytes - LOG_OVERHEAD_BYTES))
    stamp_crc(batch, 0, size_bytes)
    return batch


@enum.unique
class Retention(enum.Enum):
    """What happens to a batch when none of its records is kept; Kafka's `BatchRetention`."""

    DELETE = "delete"  # removed, without being decompressed
    DELETE_EMPTY = "delete_empty"
    RETAIN_EMPTY = "retain_empty"  # its header stays


class LastBatch(NamedTuple):
    """An active producer in the log's state: where its last data batch ended, if known."""

    last_offset: int | None
    producer_epoch: int

    def is_in(self, header: BatchHeader) -> bool:
        """Whether this batch must stay so that the log keeps the producer's sequence or epoch.

        Compared by offset, because sequences wrap around.
        """
        if self.last_offset is not None:
            return header.last_offset == self.last_offset
        return header.is_control and header.producer_epoch == self.producer_epoch


@dataclass(frozen=True, slots=True)
class Round:
    """The values that are fixed for one round of cleaning; times in ms."""

    now_ms: int
    delete_retention_ms: int
    end_offset: int
    """Exclusive. The batch that ends at this offset stays; otherwise the log would end earlier
    after a restart."""
    limit_bytes: int
    """The limit for one decompressed batch."""

    @property
    def new_horizon_ms(self) -> int:
        return self.now_ms + self.delete_retention_ms


@dataclass(slots=True)
class FilterCounts:
    """How many records a filter read, kept, and dropped for want of a key."""

    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0


@dataclass(slots=True)
class BatchFilter:
    """Filters the batches of a round, in log order, because it keeps track of transactions."""

    round: Round
    newest: OffsetMap
    transactions: PassedTransactions = field(default_factory=PassedTransactions)
    counts: FilterCounts = field(default_factory=FilterCounts)
    last_batches: Mapping[int, LastBatch] = field(default_factory=dict)
    """By producer id."""

    def keep(self, batch: BatchView) -> Buffer | None:
        """Return the batch's replacement: None to remove it, its own bytes if all of it stays.

        Raises InvalidRecord, CorruptBatch or TooLarge if the records cannot be read.
        """
        header = batch.header
        if header.is_control:
            is_meaningless = self.transactions.pass_control(batch)
            discards = is_meaningless and _is_over(header, self.round.now_ms)
        else:
            is_meaningless = False
            discards = self.transactions.pass_data(header)
        retention = self._retention(header, discards=discards)
        kept: Buffer | None = None
        if retention is not Retention.DELETE:
            kept = self._keep_records(batch, discards=discards, is_meaningless=is_meaningless)
            if kept is None and retention is Retention.RETAIN_EMPTY:
                kept = empty_batch(header)
        return kept

    def _retention(self, header: BatchHeader, *, discards: bool) -> Retention:
        last = self.last_batches.get(header.producer_id) if header.has_producer_id else None
        if last is not None and last.is_in(header):
            return Retention.RETAIN_EMPTY
        if header.next_offset == self.round.end_offset and header.magic == MAGIC_2:
            return Retention.RETAIN_EMPTY
        return Retention.DELETE if discards else Retention.DELETE_EMPTY

    def _keep_records(
        self, batch: BatchView, *, discards: bool, is_meaningless: bool
    ) -> Buffer | None:
        """Return the batch with the records that stay; None if none stays.

        A message of magic 0 or 1 is kept or removed as a whole, because tidelog never writes them.
        """
        header = batch.complete_header(limit_bytes=self.round.limit_bytes)
        self.counts.records_read += header.records_count
        if discards:
            return None
        if header.is_control:
            kept: Sequence[StoredRecord] = list(batch.records())
            needs_horizon = is_meaningless
        else:
            kept, needs_horizon = self._survivors(batch)
        self.counts.records_kept += len(kept)
        if not kept:
            return None
        if header.magic != MAGIC_2:
            return batch.buffer
        needs_horizon = needs_horizon and not header.has_delete_horizon
        if len(kept) == header.records_count and not needs_horizon:
            return batch.buffer
        horizon_ms = self.round.new_horizon_ms if needs_horizon else _horizon_of(header)
        return rewritten_batch(header, kept, horizon_ms)

    def _survivors(self, batch: BatchView) -> tuple[list[StoredRecord], bool]:
        """Return the records of a data batch that stay, and whether a tombstone is among them."""
        newest_of = self.newest.get
        latest = self.newest.latest_offset
        drops_tombstones = _is_over(batch.header, self.round.now_ms)
        kept: list[StoredRecord] = []
        has_tombstone = False
        for record in records_of(batch, self.round.limit_bytes):
            is_tombstone = record.value is None
            if record.offset <= latest:
                key = record.key
                if key is None:
                    self.counts.records_without_key += 1
                    continue
                if record.offset < newest_of(key) or (is_tombstone and drops_tombstones):
                    continue
            has_tombstone = has_tombstone or is_tombstone
            kept.append(record)
        return kept, has_tombstone


def _horizon_of(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.has_delete_horizon else None


def _is_over(header: BatchHeader, now_ms: int) -> bool:
    """Whether the batch's delete horizon, if it has one, is reached."""
    return header.has_delete_horizon and header.base_timestamp <= now_ms


def rewrite_group(
    compaction: Compaction,
    group: Sequence[Segment],
    batch_filter: BatchFilter,
    *,
    chunk_bytes: int,
    pace: Pace,
) -> Segment:
    """Replace the group by one segment; return that segment.

    The log is untouched until the swap. If anything raises, only files that the next start removes
    are left. Raises StoredDataCorrupt, InvalidRecord, TooLarge, SegmentOverflow, CleaningAborted,
    StorageError.
    """
    output = compaction.create_output(group[0].base_offset)
    try:
        writer = _Writer(compaction, output)
        for segment in group:
            rest = segments_from(compaction.segments, segment.base_offset)
            end_offset = rest[1].base_offset  # never missing: the active segment is not cleaned
            aborted = aborted_in(rest, segment.base_offset, end_offset)
            batch_filter.transactions.expect(aborted)
            for batches in read_chunks(
                segment, 0, end_offset=end_offset, chunk_bytes=chunk_bytes, pace=pace
            ):
                pace(writer.write(_kept(batch_filter, batches)))
        writer.write_aborted(batch_filter)
        compaction.finish(output, group[-1].modified_ms)
    except BaseException:
        _discard(compaction, output)
        raise
    try:
        compaction.replace(output, group)
    except CleaningAborted:
        _discard(compaction, output)
        raise
    return output


def _kept(batch_filter: BatchFilter, batches: Sequence[BatchView]) -> list[Buffer]:
    kept = (batch_filter.keep(batch) for batch in batches)
    return [batch for batch in kept if batch is not None]


def _discard(compaction: Compaction, output: Segment) -> None:
    with suppress(CleaningAborted, StorageError):  # the next start removes what is left
        compaction.discard(output)


class _Writer:
    """Appends to a segment that is not yet part of the log."""

    def __init__(self, compaction: Compaction, output: Segment) -> None:
        self._compaction = compaction
        self._output = output
        self._indexed_position = 0

    def write(self, batches: Sequence[Buffer]) -> int:
        """Append the batches in one write and index them; return their size in bytes."""
        if not batches:
            return 0
        headers = [parse_header(batch) for batch in batches]
        self._ensure_expressible(headers[-1])
        with self._compaction.writing():
            position = self._output.records.append_many(batches)
            for header in headers:
                self._index(header, position)
                position += header.size_bytes
        return sum(map(len, batches))

    def write_aborted(self, batch_filter: BatchFilter) -> None:
        """Index the aborted transactions whose marker and some data the group held."""
        still_aborted = batch_filter.transactions.still_aborted
        with self._compaction.writing():
            for aborted in still_aborted:
                self._output.indexes.transaction.append(aborted)
        still_aborted.clear()

    def _index(self, header: BatchHeader, position: int) -> None:
        output = self._output
        output.observe_maximum(header.max_timestamp, header.last_offset)
        if position - self._indexed_position > output.index_interval_bytes:
            output.index_position(OffsetPosition(header.last_offset, position))
            self._indexed_position = position

    def _ensure_expressible(self, header: BatchHeader) -> None:
        if header.last_offset - self._output.base_offset > INT32_MAX:
            raise SegmentOverflow(
                f"offset {header.last_offset} is too far from {self._output.base_offset}",
                segment=str(self._output.records.path),
                offset=header.last_offset,
            )
