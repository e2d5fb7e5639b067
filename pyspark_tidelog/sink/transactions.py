"""Commits and aborts transactions. Every step can be repeated.

Abandoned transactions are those of writers that died and were never run again. A stream or a named
write that is run again cleans up after itself. For all others, each writer looks now and then at
what the ledger says was begun more than a day ago, and aborts what is still open and was not
decided. If its writer is alive after all, in a batch that takes longer than a day, its commit
raises DataLossError.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from pyspark_tidelog.client import Answer, ServiceClient
from pyspark_tidelog.documents import ProducersPage
from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.errors import DataLossError
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.records.batches import HEADER_BYTES, BatchFrame, whole_batches
from pyspark_tidelog.records.encode import Producer
from pyspark_tidelog.sink.ledger import Attempt, Ledger

# A marker is a request that waits for the disk; the service flushes many at once.
_CONCURRENT: Final = 8
_PAGE_BYTES: Final = 1 << 20
_PRODUCER_POSITION: Final = 43
_COMMIT: Final = 1

# The producer is fenced, unknown, or has no open transaction.
_NOT_OPEN: Final = frozenset({403, 404, 409})

_Item = TypeVar("_Item")


def commit_all(endpoint: Endpoint, attempts: Iterable[Attempt]) -> None:
    """Commit every transaction of the attempts that is not committed yet.

    Raises DataLossError if another client aborted one.
    """
    wanted = [
        (attempt.producer, log, offset)
        for attempt in attempts
        for log, offset in attempt.first_offsets.items()
    ]
    _concurrently(endpoint, wanted, lambda client, item: _commit(client, *item))


def abort_all(endpoint: Endpoint, begun: Iterable[tuple[Producer, Sequence[str]]]) -> None:
    """Abort every transaction of the producers in the topics that they named."""
    _concurrently(endpoint, list(begun), lambda client, item: abort(client, *item))


def abort(client: ServiceClient, producer: Producer, topics: Sequence[str]) -> None:
    """Abort the producer's open transactions and fence it.

    The marker has the next producer epoch, so the service refuses what a dying task sends later to
    the same partitions.
    """
    next_epoch = Producer(producer.producer_id, producer.producer_epoch + 1)
    for topic in topics:
        for log in open_partitions(client, topic):
            _end(client, next_epoch, log, "abort")


def open_partitions(client: ServiceClient, topic: str) -> Iterator[TopicPartition]:
    """Yield the partitions of a topic in which a transaction is open."""
    for marks in client.topic_offsets(topic) or []:
        # An open transaction keeps the last stable offset below the log's end.
        if marks.last_stable_offset < marks.log_end_offset:
            yield TopicPartition(topic, marks.partition)


def _commit(client: ServiceClient, producer: Producer, log: TopicPartition, offset: int) -> None:
    answer = _end(client, producer, log, "commit")
    if answer.status == 200 or _is_committed(client, producer, log, offset):
        return
    raise DataLossError(
        f"a transaction in {log.described}, from offset {offset} on, was aborted after the "
        f"decision to commit it: its records are lost and must be written again"
    )


def _end(client: ServiceClient, producer: Producer, log: TopicPartition, action: str) -> Answer:
    document = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "action": action,
    }
    return client.post(f"{log.path}/transactions", document, expected=_NOT_OPEN)


def _is_committed(
    client: ServiceClient, producer: Producer, log: TopicPartition, offset: int
) -> bool:
    """Search from the transaction's first offset for the marker that ended it."""
    while True:
        path = f"{log.path}/batches?offset={offset}&max_bytes={_PAGE_BYTES}"
        answer = client.get(path, expected=frozenset({404, 410, 416}))
        if answer.status != 200:
            # 410: below the log start. It was committed, and then deleted by retention. A log that
            # ends before the offset has lost the records.
            return answer.status == 410
        frames = whole_batches(answer.body, offset)
        for frame in frames:
            if _ends(answer.body, frame, producer):
                return _marker_type(answer.body, frame) == _COMMIT
        if not frames or frames[-1].next_offset <= offset:
            return False
        offset = frames[-1].next_offset


def _ends(data: bytearray, frame: BatchFrame, producer: Producer) -> bool:
    (producer_id,) = struct.unpack_from(
        ">q", data, frame.payload_position - HEADER_BYTES + _PRODUCER_POSITION
    )
    return frame.is_control and producer_id == producer.producer_id


def _marker_type(data: bytearray, frame: BatchFrame) -> int:
    """Return the type in a marker's key: five one-byte fields, int16 version, int16 type."""
    marker: int = struct.unpack_from(">h", data, frame.payload_position + 7)[0]
    return marker


def _concurrently(
    endpoint: Endpoint, items: Sequence[_Item], act: Callable[[ServiceClient, _Item], None]
) -> None:
    """Act on every item, on a few threads with a connection each; raise the first error."""

    def act_on(part: Sequence[_Item]) -> None:
        with ServiceClient(endpoint) as client:
            for item in part:
                act(client, item)

    parts = [items[nth::_CONCURRENT] for nth in range(min(_CONCURRENT, len(items)))]
    with ThreadPoolExecutor(max(len(parts), 1)) as pool:
        for done in [pool.submit(act_on, part) for part in parts]:
            done.result()


# The time after which Kafka forgets an idle producer, by default.
ABANDONED_AFTER_MS: Final = 86_400_000

# The ledger's cursor up to which abandoned transactions are aborted; no writer has this name.
SWEEPER: Final = "(abandoned)"


def abort_abandoned(endpoint: Endpoint, topic: str, *, after_ms: int = ABANDONED_AFTER_MS) -> None:
    """Abort transactions that began more than `after_ms` ago, are open and were not decided."""
    with ServiceClient(endpoint) as client:
        ledger = Ledger(client, topic, SWEEPER)
        begin = ledger.cursor(new_begins_at="log_start_offset").offset
        end = ledger.offset_at(time.time_ns() // 1_000_000 - after_ms)
        if end <= begin:
            return
        begun = ledger.entries(begin, end, of_all=True).begun
        wanted = {name for topics in begun.values() for name in topics}
        left = begun.keys() & _open_producers(client, sorted(wanted))
        if left:
            decisions = ledger.entries(begin, of_all=True).decisions.values()
            left -= {one.producer for decision in decisions for one in decision.attempts}
            abort_all(endpoint, [(producer, sorted(begun[producer])) for producer in left])
        ledger.move(end)


def _open_producers(client: ServiceClient, topics: Collection[str]) -> set[Producer]:
    """Return the producers with an open transaction in one of the topics."""
    return {
        Producer(one.producer_id, one.producer_epoch)
        for topic in topics
        for log in open_partitions(client, topic)
        for one in client.pages(f"{log.path}/producers", ProducersPage)
        if one.current_txn_start_offset is not None
    }
