"""A task attempt that writes, on an executor: transactions under a producer id of its own.

The driver commits them. An attempt that fails aborts its transactions itself; the driver finds a
killed one in the ledger and aborts its transactions.

Records are spread by Kafka's default partitioner, for a whole column: murmur2 of all keys at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.documents import Appended, NewProducer
from pyspark_tidelog.errors import OptionError, TidelogError
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.records.encode import Producer, encode_batch, in_batches, string_places
from pyspark_tidelog.records.varints import Int64s
from pyspark_tidelog.sink.ledger import Attempt, Ledger
from pyspark_tidelog.sink.transactions import abort

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995


def partitions_of(keys: pa.Array, count: int) -> Int64s:
    """Return the partition to which a Kafka producer sends each key; undefined for a null."""
    return (_murmur2(keys) & 0x7FFFFFFF) % count


def _murmur2(keys: pa.Array) -> Int64s:
    """Return the unsigned hashes: one round for the first four bytes of all keys, and so on."""
    octets, starts, lengths = string_places(keys)
    multiplier = np.uint32(_MULTIPLIER)
    state = (np.int64(_SEED) ^ lengths).astype(np.uint32)
    for nth in range(int(lengths.max(initial=0)) // 4):
        rows = np.flatnonzero(lengths >= 4 * (nth + 1))
        word = _word(octets, starts[rows] + 4 * nth, np.full(len(rows), 4, np.int64))
        word *= multiplier
        word = (word ^ (word >> np.uint32(24))) * multiplier
        state[rows] = state[rows] * multiplier ^ word
    rests = lengths % 4
    rows = np.flatnonzero(rests)
    rest = _word(octets, starts[rows] + lengths[rows] - rests[rows], rests[rows])
    state[rows] = (state[rows] ^ rest) * multiplier
    state = (state ^ (state >> np.uint32(13))) * multiplier
    return (state ^ (state >> np.uint32(15))).astype(np.int64)


def _word(octets: np.ndarray, starts: Int64s, sizes: Int64s) -> np.ndarray:
    """Return up to four bytes from each start as one little-endian number."""
    word = np.zeros(len(starts), np.uint32)
    for nth in range(4):
        rows = np.flatnonzero(sizes > nth)
        word[rows] |= octets[starts[rows] + nth].astype(np.uint32) << np.uint32(8 * nth)
    return word


_APPENDED: Final = frozenset({201})
_RAW_BATCHES: Final = {"Content-Type": "application/vnd.kafka.recordbatch.v2"}
_SEQUENCES: Final = 1 << 31


class WritingAttempt:
    """Appends rows in transactions, one per partition; used by one thread.

    `finish` returns when everything is on disk; `write` must not be called after it.
    """

    def __init__(self, client: ServiceClient, ledger: Ledger, *, codec: str) -> None:
        self._client = client
        self._ledger = ledger
        self._codec = codec
        self._producer: Producer | None = None
        self._partition_counts: dict[str, int] = {}
        self._logs: dict[TopicPartition, _OpenLog] = {}
        self._sticky = random.randrange(1 << 16)  # noqa: S311 -- spreads the load

    def write(self, records: pa.RecordBatch) -> None:
        """Append the records; those of one partition stay in order."""
        if not len(records):
            return
        self._announce(records["topic"])
        fields = records.drop_columns(["topic", "partition"])
        for log, indices in self._by_log(records):
            for part in in_batches(fields.take(pa.array(indices))):
                self._open(log).append(part)
        self._sticky += 1

    def finish(self) -> Attempt | None:
        """Wait until everything is on disk; return what the driver commits, None if no rows."""
        if self._producer is None:
            return None
        offsets = {log: one.finish() for log, one in self._logs.items()}
        return Attempt(self._producer, offsets)

    def give_up(self) -> None:
        """Abort what was written."""
        if self._producer is not None:
            abort(self._client, self._producer, sorted(self._partition_counts))

    def _announce(self, topics: pa.Array) -> None:
        """Record the topics in the ledger before the first record is written to them."""
        new = [name for name in pc.unique(topics).to_pylist() if name not in self._partition_counts]
        if not new:
            return
        counts = {name: self._partitions_in(name) for name in new}
        if self._producer is None:
            answer = self._client.send("POST", "/v1/producers", expected=_APPENDED).to(NewProducer)
            self._producer = Producer(answer.producer_id, answer.producer_epoch)
        self._ledger.begin(self._producer, new)
        self._partition_counts |= counts

    def _partitions_in(self, topic: str) -> int:
        partitions = self._client.topic_offsets(topic)
        if partitions is None:
            raise OptionError(
                f"the service has no topic {topic}: create it first, or correct the option or "
                f"column that names it"
            )
        return len(partitions)

    def _by_log(self, records: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Int64s]]:
        """Yield each partition that records go to, with their indices in order."""
        encoded = records["topic"].dictionary_encode()
        numbers = np.asarray(encoded.indices)
        targets = records.select(["key", "partition"])
        for nth, topic in enumerate(encoded.dictionary.to_pylist()):
            chosen = np.flatnonzero(numbers == nth)
            partitions = self._partitions(targets.take(pa.array(chosen)), topic)
            for partition in np.unique(partitions):
                log = TopicPartition(topic, int(partition))
                yield log, chosen[partitions == partition]

    def _partitions(self, targets: pa.RecordBatch, topic: str) -> Int64s:
        """Return each record's partition: the one it names, or by its key, or the sticky one."""
        count = self._partition_counts[topic]
        keys, wanted = targets["key"], targets["partition"]
        found = np.where(
            np.asarray(keys.is_null()), self._sticky % count, partitions_of(keys, count)
        )
        is_given = np.asarray(wanted.is_valid())
        found = np.where(is_given, np.asarray(wanted.fill_null(0)), found)
        outside = found[(found < 0) | (found >= count)]
        if outside.size:
            raise TidelogError(
                f"topic {topic} has no partition {outside[0]}: column partition must be "
                f"0 to {count - 1}"
            )
        return found

    def _open(self, log: TopicPartition) -> _OpenLog:
        assert self._producer is not None, "the topic is recorded before the first record"
        if log not in self._logs:
            self._logs[log] = _OpenLog(self._client, log, self._producer, self._codec)
        return self._logs[log]


class _OpenLog:
    """One partition of an attempt: its next sequence number, and the batch that is sent next.

    The last batch is held back, because only it has to wait for the disk (`acks=all`).
    """

    def __init__(
        self, client: ServiceClient, log: TopicPartition, producer: Producer, codec: str
    ) -> None:
        self._client = client
        self._log = log
        self._producer = producer
        self._codec = codec
        self._sequence = 0
        self._held: bytes | None = None
        self._first_offset: int | None = None

    def append(self, records: pa.RecordBatch) -> None:
        self._send_held(acks="1")
        self._held = encode_batch(
            records, self._producer, base_sequence=self._sequence, codec=self._codec
        )
        self._sequence = (self._sequence + len(records)) % _SEQUENCES

    def finish(self) -> int:
        """Wait until all batches are on disk; return the first offset."""
        self._send_held(acks="all")
        assert self._first_offset is not None, "opened by its first batch"
        return self._first_offset

    def _send_held(self, *, acks: str) -> None:
        if self._held is None:
            return
        answer = self._client.send(
            "POST",
            f"{self._log.path}/batches?acks={acks}",
            self._held,
            headers=_RAW_BATCHES,
            expected=_APPENDED,
        )
        self._held = None
        if self._first_offset is None:
            self._first_offset = answer.to(Appended).base_offset
