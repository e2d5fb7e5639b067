"""Checks a batch against its producer's state; returns the new state, or raises.

Pure: takes an entry and a header, returns a step; changes nothing. The order of the checks is
Kafka's (`ProducerAppendInfo`): epoch, sequence, transaction. Batches with origin REPLICATION are
already in a log: violations are reported and accepted, because refusing them would lose data.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from engine.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    ProducerFenced,
    SequenceGap,
)
from engine.records.control import EndMarker
from engine.records.header import BatchHeader, increment_sequence
from engine.state.producer_entry import ProducerEntry
from engine.types import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    AppendOrigin,
    CompletedTransaction,
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
