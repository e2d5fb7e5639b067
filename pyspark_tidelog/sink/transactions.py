"""How transactions end: the markers that the driver has written, repeated until they are there."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar
from urllib.parse import quote

from pyspark_tidelog.client import Answer, ServiceClient
from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.errors import DataLossError
from pyspark_tidelog.positions import TopicPartition
from pyspark_tidelog.records.batches import HEADER_BYTES, BatchFrame, whole_batches
from pyspark_tidelog.records.encode import Producer
from pyspark_tidelog.sink.ledger import Attempt

# A marker is a request that waits for the disk; the service flushes many at once.
_CONCURRENT: Final = 8
_PAGE_BYTES: Final = 1 << 20
_PRODUCER_POSITION: Final = 43
_COMMIT: Final = 1

# The producer is fenced, unknown, or has no transaction open.
_NOT_OPEN: Final = frozenset({403, 404, 409})

_Item = TypeVar("_Item")


def commit_all(endpoint: Endpoint, attempts: Iterable[Attempt]) -> None:
    """Commit every transaction of the attempts; those that are committed already stay so.

    Raises DataLossError where one was aborted by somebody else.
    """
    wanted = [
        (attempt.producer, log, offset)
        for attempt in attempts
        for log, offset in attempt.first_offsets.items()
    ]
    _concurrently(endpoint, wanted, lambda client, item: _commit(client, *item))


def abort_all(endpoint: Endpoint, begun: Iterable[tuple[Producer, Sequence[str]]]) -> None:
    """Abort every transaction of the producers in the topics they named."""
    _concurrently(endpoint, list(begun), lambda client, item: abort(client, *item))


def abort(client: ServiceClient, producer: Producer, topics: Sequence[str]) -> None:
    """Abort a producer's transactions wherever one is open, and shut it out.

    The marker's epoch is above the producer's: what a task that is still dying sends later to the
    same partition is refused.
    """
    above = Producer(producer.producer_id, producer.producer_epoch + 1)
    for topic in topics:
        path = f"/v1/topics/{quote(topic)}/offsets"
        answer = client.get(path, expected=frozenset({404}))
        if answer.status == 200:
            for partition in answer.json()["partitions"]:
                log = TopicPartition(topic, int(partition["partition"]))
                # An open transaction keeps the last stable offset below the high watermark.
                if partition["last_stable_offset"] < partition["log_end_offset"]:
                    _end(client, above, log, "abort")


def _commit(client: ServiceClient, producer: Producer, log: TopicPartition, offset: int) -> None:
    answer = _end(client, producer, log, "commit")
    if answer.status == 200 or _is_committed(client, producer, log, offset):
        return
    raise DataLossError(
        f"a transaction in {log.described}, from offset {offset} on, was aborted after it had "
        f"been decided to commit it: its records are lost, and have to be written again"
    )


def _end(client: ServiceClient, producer: Producer, log: TopicPartition, action: str) -> Answer:
    document = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "action": action,
    }
    path = f"/v1/topics/{quote(log.topic)}/partitions/{log.partition}/transactions"
    return client.post(path, document, expected=_NOT_OPEN)


def _is_committed(
    client: ServiceClient, producer: Producer, log: TopicPartition, offset: int
) -> bool:
    """Look for the marker that ended a transaction, from its first offset on."""
    while True:
        path = (
            f"/v1/topics/{quote(log.topic)}/partitions/{log.partition}/batches"
            f"?offset={offset}&max_bytes={_PAGE_BYTES}"
        )
        answer = client.get(path, expected=frozenset({404, 410, 416}))
        if answer.status != 200:
            # Below the log's start: all of it was read, or deleted, as committed records are. A
            # log that ends before has lost what it had.
            return answer.status == 410
        frames = whole_batches(answer.body, offset)
        for frame in frames:
            if _ends(answer.body, frame, producer):
                return _marker_type(answer.body, frame) == _COMMIT
        if not frames:
            return False
        offset = frames[-1].next_offset


def _ends(data: bytearray, frame: BatchFrame, producer: Producer) -> bool:
    (producer_id,) = struct.unpack_from(
        ">q", data, frame.payload_position - HEADER_BYTES + _PRODUCER_POSITION
    )
    return frame.is_control and producer_id == producer.producer_id


def _marker_type(data: bytearray, frame: BatchFrame) -> int:
    """Return the type in the key of a marker: five one-byte fields, int16 version, int16 type."""
    marker: int = struct.unpack_from(">h", data, frame.payload_position + 7)[0]
    return marker


def _concurrently(
    endpoint: Endpoint, items: Sequence[_Item], act: Callable[[ServiceClient, _Item], None]
) -> None:
    """Act on every item, with a connection for each of a few threads; raise the first error."""

    def act_on(part: Sequence[_Item]) -> None:
        with ServiceClient(endpoint) as client:
            for item in part:
                act(client, item)

    parts = [items[nth::_CONCURRENT] for nth in range(min(_CONCURRENT, len(items)))]
    with ThreadPoolExecutor(max(len(parts), 1)) as pool:
        for done in [pool.submit(act_on, part) for part in parts]:
            done.result()
