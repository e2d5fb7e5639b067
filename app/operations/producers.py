"""Producers of a log: their state, the outcome of their appends, the end of transactions."""

from __future__ import annotations

from typing import Final

from app.codecs.paging import MAX_PAGE_ENTRIES
from app.codecs.receipts import log_answer, to_json
from app.http.answers import Answer, json_answer
from app.operations.service import Service
from app.store.local.partition import LocalPartition
from app.store.local.transactions import Ending
from app.store.port import Partition, entry_of
from engine.records.control import ControlType
from engine.records.header import increment_sequence
from engine.state.producer_entry import BatchMetadata, ProducerEntry
from engine.state.watermarks import Watermarks
from engine.types import INT32_MAX, NO_SEQUENCE, UNKNOWN_OFFSET
from schemas.producers import EndTransaction

SEQUENCES: Final = INT32_MAX + 1
"""Sequences wrap after this many."""

_MARKERS: Final = {"commit": ControlType.COMMIT, "abort": ControlType.ABORT}


async def allocate_producer(service: Service) -> Answer:
    """Return a new producer id."""
    producer_id, producer_epoch = await service.topics.allocate_producer()
    return json_answer(
        to_json({"producer_id": producer_id, "producer_epoch": producer_epoch}), status=201
    )


async def list_producers(partition: Partition, *, page_size: int, page_token: str | None) -> Answer:
    """Return one page of the producers that have not expired, by id."""
    after = -1 if page_token is None else int(page_token)
    producers = await partition.producers()
    rest = [entry for entry in producers if entry.producer_id > after]
    page = rest[: min(page_size, MAX_PAGE_ENTRIES)]
    await partition.refresh()
    body = {
        "topic": partition.topic,
        "partition": partition.number,
        "producers": [_described(entry) for entry in page],
        "next_page_token": str(page[-1].producer_id) if len(page) < len(rest) else None,
    }
    return log_answer(partition, body)


async def get_append_outcome(
    partition: Partition, producer_id: int, sequence: int, epoch: int | None
) -> Answer:
    """Return the outcome of the append with a sequence; raises ProducerNotFound."""
    producers = await partition.producers()
    entry = entry_of(producers, partition.topic_partition, producer_id)
    await partition.refresh()
    marks = partition.watermarks
    is_present = epoch is None or epoch == entry.producer_epoch
    batch = _batch_with(entry, sequence) if is_present else None
    known = None if batch is None or batch.last_offset == UNKNOWN_OFFSET else batch
    body = {
        "producer_id": producer_id,
        "producer_epoch": entry.producer_epoch,
        "sequence": sequence,
        "outcome": _outcome(entry, batch, marks, sequence, epoch),
        "base_offset": None if known is None else known.first_offset,
        "last_offset": None if known is None else known.last_offset,
        "next_sequence": _next_sequence(entry),
    }
    return log_answer(partition, body, marks=marks)


async def end_transaction(partition: LocalPartition, wanted: EndTransaction) -> Answer:
    """Write the marker that ends a producer's open transaction; answer when it is on disk.

    A repeated request gets the first answer. Raises as `LocalPartition.end_transaction`.
    """
    kind = _MARKERS[wanted.action]
    ended = await partition.end_transaction(Ending(wanted.producer_id, wanted.producer_epoch, kind))
    body = {
        "topic": partition.topic,
        "partition": partition.number,
        "producer_id": wanted.producer_id,
        "producer_epoch": wanted.producer_epoch,
        "action": wanted.action,
        "first_offset": ended.first_offset,
        "marker_offset": ended.marker_offset,
    }
    return log_answer(partition, body, etag=ended.tag)


def _described(entry: ProducerEntry) -> dict[str, object]:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "coordinator_epoch": entry.coordinator_epoch,
        "last_sequence": entry.last_sequence,
        "last_timestamp": entry.last_timestamp,
        "current_txn_start_offset": entry.transaction_first_offset,
    }


def _batch_with(entry: ProducerEntry, sequence: int) -> BatchMetadata | None:
    """Return the remembered batch that contains the sequence; the newest if it wrapped."""
    for batch in reversed(entry.batches):
        if (sequence - batch.first_sequence) % SEQUENCES <= batch.offset_delta:
            return batch
    return None


def _next_sequence(entry: ProducerEntry) -> int:
    last_sequence = entry.last_sequence
    return 0 if last_sequence == NO_SEQUENCE else increment_sequence(last_sequence, 1)


def _outcome(
    entry: ProducerEntry,
    batch: BatchMetadata | None,
    marks: Watermarks,
    sequence: int,
    epoch: int | None,
) -> str:
    """Return the outcome of a sequence; one in the next half of the range is not written yet."""
    if batch is not None:
        is_committed = UNKNOWN_OFFSET < batch.last_offset < marks.high_watermark
        return "committed" if is_committed else "written"
    if epoch is not None and epoch != entry.producer_epoch:
        return "absent" if epoch > entry.producer_epoch else "forgotten"
    is_ahead = (sequence - _next_sequence(entry)) % SEQUENCES < SEQUENCES // 2
    return "absent" if is_ahead else "forgotten"
