"""Topics of every kind, filled over HTTP, and what the service shows of them."""

import random
from typing import Final

import httpx

from engine.records.builder import NewRecord, build_batch
from engine.records.header import Codec
from tests.support.broker import BrokerRecord
from tests.support.kafka_batches import decoded

FLIGHTS: Final = "flights"
LATEST: Final = "latest"
PARTITIONS: Final = 4
"""Of flights; `LATEST` is one compacted partition."""
SEGMENT_BYTES: Final = 1 << 20
HOUR_MS: Final = 3_600_000
RAW: Final = {"content-type": "application/vnd.kafka.recordbatch.v2"}


def records_of(now_ms: int, first: int, count: int) -> list[NewRecord]:
    """Records of a kilobyte that tell themselves apart, an hour old and a millisecond apart."""
    return [
        (
            now_ms - HOUR_MS + number,
            b"key-%d" % (number % 50),
            b"%d:%b" % (number, random.Random(number).randbytes(500).hex().encode()),
            [("n", b"%d" % number)],
        )
        for number in range(first, first + count)
    ]


def fill(client: httpx.Client, now_ms: int) -> None:
    """Write of every kind: all codecs, several segments, transactions, records that superseded."""
    config = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "4096"}
    topics = {FLIGHTS: (PARTITIONS, {}), LATEST: (1, {"cleanup.policy": "compact"})}
    for topic, (partitions, more) in topics.items():
        body = {"partitions": partitions, "config": config | more}
        client.put(f"/v1/topics/{topic}", json=body).raise_for_status()
    for number in range(40):
        batch = build_batch(records_of(now_ms, number * 100, 100), codec=Codec(number % 5))
        for path in (f"{FLIGHTS}/partitions/{number % 2}", f"{LATEST}/partitions/0"):
            url = f"/v1/topics/{path}/batches"
            client.post(url, content=bytes(batch), headers=RAW).raise_for_status()
    for producer_id, action in ((7, "commit"), (8, "abort"), (9, "commit")):
        batch = build_batch(
            records_of(now_ms, producer_id, 3),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        url = f"/v1/topics/{FLIGHTS}/partitions/2"
        client.post(f"{url}/batches", content=bytes(batch), headers=RAW).raise_for_status()
        ending = {"producer_id": producer_id, "producer_epoch": 0, "action": action}
        client.post(f"{url}/transactions", json=ending).raise_for_status()
    one = {"records": [{"key": "ü", "value": {"a": 1}}, {"key": "b", "value": [None]}]}
    client.post(f"/v1/topics/{FLIGHTS}/partitions/3/records", json=one).raise_for_status()
    client.post(f"/v1/topics/{LATEST}/partitions/0/roll").raise_for_status()
    client.post(f"/v1/topics/{LATEST}/partitions/0/compact").raise_for_status()


def served(
    client: httpx.Client, topic: str, partitions: int, isolation: str = "read_uncommitted"
) -> list[BrokerRecord]:
    """Return every record that tidelog serves, as the broker's consumer would print it."""
    rows = []
    for partition in range(partitions):
        url, offset = f"/v1/topics/{topic}/partitions/{partition}/batches", "0"
        while True:
            asked = {"offset": offset, "isolation": isolation, "on_out_of_range": "earliest"}
            answer = client.get(url, params=asked).raise_for_status()
            for number, timestamp, _, key, value, headers in decoded(answer.content):
                if number >= int(offset):
                    named = ",".join(f"{name}:{text.decode()}" for name, text in headers)
                    words = (named, key.decode(), value.decode())
                    rows.append(BrokerRecord(partition, number, timestamp, *words))
            if answer.headers["log-next-offset"] == offset:
                break
            offset = answer.headers["log-next-offset"]
    return rows
