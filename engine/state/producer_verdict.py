"""Whether an append is accepted, with the changes of producer state that it makes, or a duplicate.

Pure: entries are only read, and nothing changes. Each batch is checked against the changes staged
by the batches before it. The order of the checks is that of Kafka's `ProducerAppendInfo`: epoch,
sequence, transaction. Batches with origin REPLICATION are already in a log: violations are reported
and accepted, because refusing them would lose data.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from engine.errors import (
    CoordinatorFenced,
    InvalidRequestValue,
    InvalidTransactionState,
    ProducerFenced,
    SequenceGap,
)
from engine.records.control import EndMarker
from engine.records.header import BatchHeader, increment_sequence
from engine.state.producer_entry import CACHED_BATCHES, BatchMetadata, ProducerEntry
from engine.state.transactions import OpenTransaction
from engine.types import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    AppendOrigin,
    CompletedTransaction,
    OffsetMetadata,
)

_logger = logging.getLogger(__name__)


class Step(NamedTuple):
    """The changes of one accepted batch."""

    entry: ProducerEntry
    opens_transaction: bool = False
    completed: CompletedTransaction | None = None


def judge_data(
    entry: ProducerEntry,
    header: BatchHeader,
    origin: AppendOrigin,
    now_ms: int,
) -> Step:
    """Return the step for a data batch with assigned offsets.

    Raises ProducerFenced, SequenceGap or InvalidTransactionState.
    """
    _check_producer_epoch(entry, header, origin)
    if origin is AppendOrigin.CLIENT:
        _check_sequence(entry, header)
    appended = entry.with_batch(header, now_ms)
    in_transaction = entry.transaction_first_offset is not None
    if in_transaction and not header.is_transactional:
        _refuse_plain_batch_in_transaction(entry, header, origin)
    if header.is_transactional and not in_transaction:
        opened = appended._replace(transaction_first_offset=header.base_offset)
        return Step(opened, opens_transaction=True)
    return Step(appended)


def judge_marker(
    entry: ProducerEntry,
    header: BatchHeader,
    marker: EndMarker | None,
    origin: AppendOrigin,
    now_ms: int,
) -> Step:
    """Return the step for a control batch with an assigned offset.

    `marker` is None for a control batch that ends no transaction: it was emptied by compaction, or
    has another type. Then the producer is only recorded as known.

    Raises ProducerFenced or CoordinatorFenced.
    """
    if marker is None:
        return Step(entry._replace(seen_ms=now_ms))
    _check_producer_epoch(entry, header, origin)
    _check_coordinator_epoch(entry, marker, origin)
    completed = None
    if entry.transaction_first_offset is not None:
        completed = CompletedTransaction(
            producer_id=entry.producer_id,
            first_offset=entry.transaction_first_offset,
            last_offset=header.base_offset,
            is_aborted=marker.is_abort,
        )
    ended = entry.with_marker(header.producer_epoch, marker, now_ms)
    return Step(ended, completed=completed)


def _check_producer_epoch(entry: ProducerEntry, header: BatchHeader, origin: AppendOrigin) -> None:
    if header.producer_epoch >= entry.producer_epoch:
        return
    message = (
        f"epoch {header.producer_epoch} of producer {entry.producer_id} at offset "
        f"{header.base_offset} is older than {entry.producer_epoch}"
    )
    if origin is AppendOrigin.REPLICATION:
        _logger.warning("%s; accepted, because it is already in the log", message)
        return
    raise ProducerFenced(
        message,
        producer_id=entry.producer_id,
        current_epoch=entry.producer_epoch,
        epoch=header.producer_epoch,
    )


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    if entry.producer_epoch == NO_PRODUCER_EPOCH:
        return  # an unknown or expired producer may use any sequence
    if header.producer_epoch != entry.producer_epoch or entry.last_sequence == NO_SEQUENCE:
        expected = 0  # the first batch of an epoch
    else:
        expected = increment_sequence(entry.last_sequence, 1)
    if header.base_sequence != expected:
        raise SequenceGap(
            f"producer {entry.producer_id}, epoch {header.producer_epoch}: sequence {expected} was "
            f"expected, {header.base_sequence} was received",
            producer_id=entry.producer_id,
            producer_epoch=header.producer_epoch,
            expected=expected,
            received=header.base_sequence,
        )


def _refuse_plain_batch_in_transaction(
    entry: ProducerEntry, header: BatchHeader, origin: AppendOrigin
) -> None:
    message = (
        f"producer {entry.producer_id} has a transaction open since offset "
        f"{entry.transaction_first_offset}, but the batch at {header.base_offset} is not part of it"
    )
    if origin is AppendOrigin.REPLICATION:
        _logger.warning("%s; accepted, because it is already in the log", message)
        return
    raise InvalidTransactionState(
        message,
        producer_id=entry.producer_id,
        transaction_first_offset=entry.transaction_first_offset,
    )


def _check_coordinator_epoch(entry: ProducerEntry, marker: EndMarker, origin: AppendOrigin) -> None:
    if marker.coordinator_epoch >= entry.coordinator_epoch:
        return
    message = (
        f"coordinator epoch {marker.coordinator_epoch} of a marker for producer "
        f"{entry.producer_id} is older than {entry.coordinator_epoch}"
    )
    if origin is AppendOrigin.REPLICATION:
        _logger.info("%s; accepted, because it is already in the log", message)
        return
    raise CoordinatorFenced(
        message,
        producer_id=entry.producer_id,
        current_coordinator_epoch=entry.coordinator_epoch,
        coordinator_epoch=marker.coordinator_epoch,
    )


class Accepted(NamedTuple):
    """The changes to apply once the append is written."""

    entries: Mapping[int, ProducerEntry]
    opened: Sequence[OpenTransaction]
    completed: Sequence[CompletedTransaction]


class Duplicate(NamedTuple):
    """The append is in the log already, at these inclusive offsets and with this timestamp."""

    first_offset: int
    last_offset: int
    timestamp: int


Verdict: TypeAlias = Accepted | Duplicate

NOTHING_TO_APPLY: Final = Accepted({}, (), ())


def duplicate_of(
    live: Mapping[int, ProducerEntry], headers: Sequence[BatchHeader]
) -> Duplicate | None:
    """Return the earlier append of exactly these batches, if all are remembered and consecutive.

    If only some are, a Duplicate would lose the others; the sequence check refuses them.
    """
    remembered: list[BatchMetadata] = []
    for header in headers:
        entry = live.get(header.producer_id)
        batch = entry.duplicate_of(header) if entry else None
        if batch is None:
            return None
        if remembered and batch.first_offset != remembered[-1].last_offset + 1:
            return None
        remembered.append(batch)
    newest = remembered[-1]
    return Duplicate(remembered[0].first_offset, newest.last_offset, newest.timestamp)


def ensure_repeatable(headers: Sequence[BatchHeader]) -> None:
    """Raise InvalidRequestValue if one producer has more batches than duplicate detection keeps."""
    if len(headers) <= CACHED_BATCHES:
        return
    counts = Counter(header.producer_id for header in headers if header.has_producer_id)
    for producer_id, count in counts.items():
        if count > CACHED_BATCHES:
            raise InvalidRequestValue(
                f"an append holds at most {CACHED_BATCHES} batches of one producer, not {count}: "
                "a retry of more would not be recognised",
                producer_id=producer_id,
            )


class Staging:
    """The staged changes of one append.

    `bytes_before` is the size of the previous batches: a new transaction records its position in
    the segment, if `start` gives the position of the append.
    """

    __slots__ = (
        "_completed",
        "_entries",
        "_live",
        "_now_ms",
        "_opened",
        "_origin",
        "_start",
        "bytes_before",
    )

    def __init__(
        self,
        live: Mapping[int, ProducerEntry],
        origin: AppendOrigin,
        *,
        start: OffsetMetadata,
        now_ms: int,
    ) -> None:
        self.bytes_before = 0
        self._live = live
        self._origin = origin
        self._start = start
        self._now_ms = now_ms
        self._entries: dict[int, ProducerEntry] = {}
        self._opened: list[OpenTransaction] = []
        self._completed: list[CompletedTransaction] = []

    def entry(self, producer_id: int) -> ProducerEntry:
        """Return the producer's state after the previous batches; an unknown one has no epoch."""
        staged = self._entries.get(producer_id) or self._live.get(producer_id)
        return staged or ProducerEntry(producer_id)

    def stage_data(self, header: BatchHeader) -> None:
        """Check a data batch and stage its step. Raises what `judge_data` raises."""
        step = judge_data(self.entry(header.producer_id), header, self._origin, self._now_ms)
        if step.opens_transaction:
            first = self._place(header.base_offset)
            self._opened.append(OpenTransaction(first, header.producer_id))
        self._entries[header.producer_id] = step.entry

    def stage_marker(self, header: BatchHeader, marker: EndMarker | None) -> None:
        """Check a control batch and stage its step. Raises what `judge_marker` raises."""
        entry = self.entry(header.producer_id)
        step = judge_marker(entry, header, marker, self._origin, self._now_ms)
        if step.completed is not None:
            self._completed.append(step.completed)
        self._entries[header.producer_id] = step.entry

    def accepted(self) -> Accepted:
        """Return all staged changes."""
        return Accepted(self._entries, self._opened, self._completed)

    def _place(self, offset: int) -> OffsetMetadata:
        if self._start.is_offset_only:
            return OffsetMetadata(offset)
        position = self._start.position + self.bytes_before
        return OffsetMetadata(offset, self._start.segment_base_offset, position)
