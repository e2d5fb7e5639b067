"""One producer's state in a log: its epoch, its last five batches, its open transaction.

Entries are immutable: an append stages new ones, and one dictionary update publishes them. Mirrors
Kafka's `ProducerStateEntry`.

`last_timestamp` is a record's timestamp and is stored in snapshots, as in Kafka. `seen_ms` is the
time of the last append or of loading; it is only kept in memory, so that producers that backfill
old records do not expire early.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from engine.records.control import EndMarker
from engine.records.header import BatchHeader, decrement_sequence
from engine.types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

CACHED_BATCHES: Final = 5
"""How many batches per producer duplicate detection keeps; Kafka's `NUM_BATCHES_TO_RETAIN`."""

NO_COORDINATOR_EPOCH: Final = -1

LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60_000
"""How long after its timeout an open transaction counts as late; Kafka's constant."""


class BatchMetadata(NamedTuple):
    """One appended batch, for duplicate detection; both ends inclusive."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


Idle: TypeAlias = tuple[int, int]
"""Since when a producer is idle: the time of its last append or loading, then its last record
time."""


class ProducerEntry(NamedTuple):
    """One producer's state at one moment; `batches` are in append order, the newest last."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int | None = None
    batches: tuple[BatchMetadata, ...] = ()
    seen_ms: int = 0

    @property
    def last_sequence(self) -> int:
        """The sequence before the next one, or -1 if no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def idle(self) -> Idle:
        return self.seen_ms, self.last_timestamp

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch of exactly the same epoch and sequences, if there is one."""
        if self.producer_epoch != header.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            same_last = batch.last_sequence == last_sequence
            if same_last and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the producer has been idle for `expiration_ms` and has no open transaction."""
        if self.transaction_first_offset is not None:
            return False
        return now_ms - max(self.last_timestamp, self.seen_ms) >= expiration_ms

    def is_late(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        """Whether a transaction is open for longer than the maximum timeout and 5 minutes."""
        if self.transaction_first_offset is None or self.last_timestamp <= 0:
            return False
        allowed_ms = max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        return now_ms - self.last_timestamp > allowed_ms

    def with_batch(self, header: BatchHeader, now_ms: int) -> ProducerEntry:
        """Return the state after a data batch; a new epoch drops the remembered batches."""
        batch = BatchMetadata(
            header.last_sequence,
            header.last_offset,
            header.last_offset_delta,
            header.max_timestamp,
        )
        kept = self.batches if self.producer_epoch == header.producer_epoch else ()
        return ProducerEntry(  # not _replace, which takes three times as long
            self.producer_id,
            header.producer_epoch,
            self.coordinator_epoch,
            header.max_timestamp,
            self.transaction_first_offset,
            (*kept[1 - CACHED_BATCHES :], batch),
            now_ms,
        )

    def with_marker(self, producer_epoch: int, marker: EndMarker, now_ms: int) -> ProducerEntry:
        """Return the state after a marker; a new epoch drops the remembered batches."""
        kept = self.batches if self.producer_epoch == producer_epoch else ()
        return self._replace(
            producer_epoch=producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            last_timestamp=marker.timestamp,
            transaction_first_offset=None,
            batches=kept,
            seen_ms=now_ms,
        )
