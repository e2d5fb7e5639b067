"""Producers of a log: their state, the outcome of their appends, the end of transactions."""

from __future__ import annotations

from typing import Final

from app.codecs.receipts import log_answer, to_json
from app.http.answers import Answer, json_answer
from app.operations.service import Service
from app.store.local.partition import LocalPartition
from engine.errors import InvalidTransactionState, ProducerNotFound
from engine.log.log import Log
from engine.log.results import LogTag
from engine.records.batch import BatchView
from engine.records.control import ControlType, build_end_marker, parse_end_marker
from engine.records.header import increment_sequence
from engine.records.scan import iter_headers
from engine.state.producer_entry import BatchMetadata, ProducerEntry
from engine.state.watermarks import Watermarks
from engine.types import INT32_MAX, INT64_MAX, NO_SEQUENCE, AppendOrigin, FetchIsolation
from schemas.producers import EndTransaction

SEQUENCES: Final = INT32_MAX + 1
"""Sequences wrap after this many."""
MAX_ENDED: Final = 1_000
"""Cached first offsets of ended transactions, for repeated requests."""
MAX_SOUGHT_OFFSETS: Final = 100_000
"""Offsets that are searched for the marker of a repeated request."""
PIECE_BYTES: Final = 256 * 1024

_MARKERS: Final = {"commit": ControlType.COMMIT, "abort": ControlType.ABORT}


async def allocate_producer(service: Service) -> Answer:
    """Return a new producer id."""
    manager = service.manager
    producer_id, producer_epoch = await service.administer(manager.allocate_producer)
    return json_answer(
        to_json({"producer_id": producer_id, "producer_epoch": producer_epoch}), status=201
    )


async def list_producers(
    service: Service, partition: LocalPartition, *, page_size: int, page_token: str | None
) -> Answer:
    """Return one page of the producers that have not expired, by id."""
    after = -1 if page_token is None else int(page_token)
    producers = await service.administer(partition.log.producers.active)
    rest = [entry for entry in producers if entry.producer_id > after]
    page = rest[: min(page_size, service.settings.max_page_size)]
    body = {
        "topic": partition.topic,
        "partition": partition.number,
        "producers": [_described(entry) for entry in page],
        "next_page_token": str(page[-1].producer_id) if len(page) < len(rest) else None,
    }
    return log_answer(partition, body)


async def get_append_outcome(
    service: Service, partition: LocalPartition, producer_id: int, sequence: int, epoch: int | None
) -> Answer:
    """Return the outcome of the append with a sequence; raises ProducerNotFound."""
    entry = await service.administer(lambda: _entry_of(partition.log, producer_id))
    marks = partition.log.watermarks
    is_present = epoch is None or epoch == entry.producer_epoch
    batch = _batch_with(entry, sequence) if is_present else None
    body = {
        "producer_id": producer_id,
        "producer_epoch": entry.producer_epoch,
        "sequence": sequence,
        "outcome": _outcome(entry, batch, marks, sequence, epoch),
        "base_offset": None if batch is None else batch.first_offset,
        "last_offset": None if batch is None else batch.last_offset,
        "next_sequence": _next_sequence(entry),
    }
    return log_answer(partition, body, marks=marks)


async def end_transaction(
    service: Service, partition: LocalPartition, wanted: EndTransaction
) -> Answer:
    """Write the marker that ends a producer's open transaction; answer when it is on disk.

    Markers are only written here, one at a time: no transaction ends twice. A repeated request gets
    the first answer, from the existing marker. Raises ProducerNotFound, ProducerFenced, and
    InvalidTransactionState if no transaction is open and none ended this way.
    """
    log = partition.log

    def end() -> tuple[int | None, int, LogTag]:
        entry = _entry_of(log, wanted.producer_id)
        first_offset = entry.transaction_first_offset
        if first_offset is None:
            marker_offset, tag = _marker_of(log, entry, wanted)
            return (
                service.ended_transactions.get((log.reader.log_id, marker_offset)),
                marker_offset,
                tag,
            )
        marker = build_end_marker(
            _MARKERS[wanted.action],
            producer_id=wanted.producer_id,
            producer_epoch=wanted.producer_epoch,
            coordinator_epoch=max(entry.coordinator_epoch, 0),
            timestamp=service.clock.now_ms(),
        )
        appended = service.runtime.committer.append(
            log, marker, acks_all=True, origin=AppendOrigin.COORDINATOR
        )
        return first_offset, appended.base_offset, appended.tag

    async with service.ending:
        first_offset, marker_offset, tag = await service.workers.write(end)
        if first_offset is not None:
            _remember(service.ended_transactions, (log.reader.log_id, marker_offset), first_offset)
    await service.on_disk(log, marker_offset + 1)
    body = {
        "topic": partition.topic,
        "partition": partition.number,
        "producer_id": wanted.producer_id,
        "producer_epoch": wanted.producer_epoch,
        "action": wanted.action,
        "first_offset": first_offset,
        "marker_offset": marker_offset,
    }
    return log_answer(partition, body, etag=tag)


def _remember(ended: dict[tuple[str, int], int], key: tuple[str, int], first_offset: int) -> None:
    ended[key] = first_offset
    if len(ended) > MAX_ENDED:
        del ended[next(iter(ended))]


def _marker_of(log: Log, entry: ProducerEntry, wanted: EndTransaction) -> tuple[int, LogTag]:
    """Return the marker that ended a producer's last transaction, and the log end after it.

    Raises InvalidTransactionState without one of this epoch and kind in range: the log is searched
    from the producer's last batch on.
    """
    marks = log.watermarks
    offset = entry.batches[-1].last_offset + 1 if entry.batches else INT64_MAX
    offset = max(offset, marks.log_start_offset)
    end = min(marks.log_end_offset, offset + MAX_SOUGHT_OFFSETS)
    while offset < end:
        fetched = log.reader.read(offset, max_bytes=PIECE_BYTES, isolation=FetchIsolation.LOG_END)
        assert fetched is not None, "only a read of cached bytes may find nothing"
        for position, header in iter_headers(fetched.data):
            if header.is_control and header.producer_id == wanted.producer_id:
                marker = parse_end_marker(BatchView(fetched.data, position))
                is_same = marker is not None and marker.control_type is _MARKERS[wanted.action]
                if is_same and header.producer_epoch == wanted.producer_epoch:
                    tag = LogTag(fetched.leader_epoch, header.next_offset, header.crc)
                    return header.base_offset, tag
                end = offset  # it ended, in the other way
        offset = fetched.next_offset
    raise InvalidTransactionState(
        f"producer {wanted.producer_id} has no open transaction here",
        producer_id=wanted.producer_id,
    )


def _entry_of(log: Log, producer_id: int) -> ProducerEntry:
    for entry in log.producers.active():
        if entry.producer_id == producer_id:
            return entry
    raise ProducerNotFound(
        f"{log.topic_partition} knows no producer {producer_id}", producer_id=producer_id
    )


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
        return "committed" if batch.last_offset < marks.high_watermark else "written"
    if epoch is not None and epoch != entry.producer_epoch:
        return "absent" if epoch > entry.producer_epoch else "forgotten"
    is_ahead = (sequence - _next_sequence(entry)) % SEQUENCES < SEQUENCES // 2
    return "absent" if is_ahead else "forgotten"
