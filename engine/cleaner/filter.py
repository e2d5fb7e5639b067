"""What compaction keeps of one batch, and why. Pure: takes a batch, returns its replacement.

A record of a data batch is removed if the map has a newer one of its key, if it has no key, or if
it is a tombstone past its delete horizon. A tombstone gets its delete horizon when a pass keeps it
for the first time; a marker gets one when no data of its transaction is left. So a reader that
keeps up sees every delete. Emptied batches stay as bare headers while their offset or sequence is
needed. Mirrors the record filter of Kafka's `Cleaner` and `MemoryRecords.filterTo`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.cleaner.encoding import empty_batch, rewritten_batch
from engine.cleaner.offset_map import OffsetMap
from engine.cleaner.reading import StoredRecord, records_of
from engine.cleaner.transactions import PassedTransactions
from engine.records.batch import BatchView
from engine.records.header import MAGIC_2, BatchHeader
from engine.types import Buffer


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
