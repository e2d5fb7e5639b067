"""Records to the log, each exactly once however often a request has to be repeated.

A producer id is allocated for the whole run and every partition counts its own sequence, so the
service recognises a batch that it has already: a lost answer or a restart in the middle costs a
retry, never a record too few or too many. Each partition belongs to one worker, which has one
request under way at a time, because a sequence must arrive in order.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from app.client.connection import Connection, Request, decode_object, partitions_of, topic_path
from app.client.failures import Failure, Interrupted, Refused
from app.client.partitioner import partition_of
from app.client.record_lines import RecordLine

DEFAULT_BATCH_RECORDS: Final = 1_000
DEFAULT_BATCH_BYTES: Final = 512 * 1024  # half of the default max.message.bytes
DEFAULT_WORKERS: Final = 4
_SEQUENCE_RANGE: Final = 2**31  # sequences are 32 bits and wrap to 0
_BATCHES_AHEAD: Final = 2
_STOP_CHECK_S: Final = 0.2


@dataclass(slots=True)
class AppendReport:
    """What is certainly in the log; `duplicates` of `records` were found there by a retry."""

    records: int = 0
    requests: int = 0
    duplicates: int = 0
    by_partition: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Lane:
    """Waiting records of one partition, and the sequence of the first."""

    partition: int
    next_sequence: int
    lines: list[bytes] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)
    """The input line of each record."""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Batch:
    partition: int
    sequence: int
    lines: list[bytes]
    numbers: list[int | None]


class Appender:
    """Appends to one topic until it is closed; `add` from one thread.

    A record with a key goes where Kafka's partitioner puts it, one without to a partition that
    changes with each batch, any to `partition` if that is given. `on_appended` is called, under a
    lock, with how many records more are in the log. The first failure of any worker is raised by
    the next `add` or by leaving the `with` block.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        *,
        partition: int | None = None,
        batch_records: int = DEFAULT_BATCH_RECORDS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        workers: int = DEFAULT_WORKERS,
        first_sequence: int = 0,
        on_appended: Callable[[int], None] | None = None,
    ) -> None:
        self.report = AppendReport()
        self._connection = connection
        self._topic = topic
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self._on_appended = on_appended
        partitions = partitions_of(connection, topic)
        if partition is not None and partition >= partitions:
            raise Failure(f"{topic} has partitions 0 to {partitions - 1}, not {partition}")
        self._fixed_partition = partition
        self._sticky_partition = 0
        self._lanes = [_Lane(number, first_sequence) for number in range(partitions)]
        producer = connection.json(Request("POST", "/v1/producers"))
        self._producer_headers = {
            "Content-Type": "application/x-ndjson",
            "Producer-Id": str(producer["producer_id"]),
            "Producer-Epoch": str(producer["producer_epoch"]),
        }
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._queues: list[queue.Queue[_Batch | None]] = [
            queue.Queue(_BATCHES_AHEAD) for _ in range(min(workers, partitions))
        ]
        self._workers = [
            threading.Thread(target=self._work, args=(batches,), name=f"append-{n}", daemon=True)
            for n, batches in enumerate(self._queues)
        ]
        for worker in self._workers:
            worker.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Send the remaining records and wait; after an error only wait for open requests."""
        try:
            if error is None:
                self.flush()
            elif self._failure is None:
                self._failure = Interrupted()
                self._connection.stop_waiting()
        finally:
            for batches in self._queues:
                self._put(batches, None)
            for worker in self._workers:
                worker.join()
        if error is None:
            self._raise_failure()

    def add(self, record: RecordLine) -> None:
        """Take one more record; waits when the service is slower than the input."""
        lane = self._lanes[self._partition_for(record.key)]
        if lane.lines and lane.size_bytes + len(record.line) > self._batch_bytes:
            self._hand_over(lane)
        lane.lines.append(record.line)
        lane.numbers.append(record.number)
        lane.size_bytes += len(record.line) + 1
        if len(lane.lines) >= self._batch_records:
            self._hand_over(lane)

    def _partition_for(self, key: bytes | None) -> int:
        if self._fixed_partition is not None:
            return self._fixed_partition
        if key is not None:
            return partition_of(key, len(self._lanes))
        return self._sticky_partition

    def flush(self) -> None:
        """Hand over every waiting record; raise the failure of a worker, if there is one."""
        self._raise_failure()
        for lane in self._lanes:
            if lane.lines:
                self._hand_over(lane)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _hand_over(self, lane: _Lane) -> None:
        self._raise_failure()
        batch = _Batch(lane.partition, lane.next_sequence, lane.lines, lane.numbers)
        lane.next_sequence = (lane.next_sequence + len(lane.lines)) % _SEQUENCE_RANGE
        lane.lines, lane.numbers = [], []
        lane.size_bytes = 0
        if lane.partition == self._sticky_partition:
            self._sticky_partition = (self._sticky_partition + 1) % len(self._lanes)
        self._put(self._queues[lane.partition % len(self._queues)], batch)

    def _put(self, batches: queue.Queue[_Batch | None], batch: _Batch | None) -> None:
        """Wait for room, in steps short enough for Ctrl-C; a failed worker makes room at once."""
        while True:
            try:
                batches.put(batch, timeout=_STOP_CHECK_S)
            except queue.Full:
                continue
            return

    def _work(self, batches: queue.Queue[_Batch | None]) -> None:
        while (batch := batches.get()) is not None:
            if self._failure is not None:
                continue  # no batch may follow a missing one: its sequence would be a gap
            try:
                self._send(batch)
            except Exception as failure:  # noqa: BLE001 - it is raised again in the caller's thread
                self._fail(failure)

    def _fail(self, failure: Exception) -> None:
        with self._lock:
            self._failure = self._failure or failure

    def _send(self, batch: _Batch) -> None:
        """Send a batch; one that is too large is halved until it fits or is a single record."""
        headers = {**self._producer_headers, "Producer-Sequence": str(batch.sequence)}
        path = topic_path(self._topic, batch.partition, "records")
        try:
            response = self._connection.send(
                Request("POST", path, headers=headers, content=b"\n".join(batch.lines))
            )
        except Refused as failure:
            if failure.code != "too_large" or len(batch.lines) == 1:
                raise _with_lines(failure, batch.numbers) from None
            for half in _halves(batch):
                self._send(half)
            return
        self._count(batch, is_duplicate=decode_object(response).get("duplicate") is True)

    def _count(self, batch: _Batch, *, is_duplicate: bool) -> None:
        records = len(batch.lines)
        with self._lock:
            self.report.records += records
            self.report.requests += 1
            self.report.duplicates += records if is_duplicate else 0
            counts = self.report.by_partition
            counts[batch.partition] = counts.get(batch.partition, 0) + records
            if self._on_appended is not None:
                self._on_appended(records)


def _halves(batch: _Batch) -> tuple[_Batch, _Batch]:
    middle = len(batch.lines) // 2
    second = (batch.sequence + middle) % _SEQUENCE_RANGE
    return (
        _Batch(batch.partition, batch.sequence, batch.lines[:middle], batch.numbers[:middle]),
        _Batch(batch.partition, second, batch.lines[middle:], batch.numbers[middle:]),
    )


def _with_lines(failure: Refused, numbers: list[int | None]) -> Refused:
    """Return the failure with the lines of the input that its records came from."""
    errors = [
        error if error.get("index") is None else {**error, "line": numbers[error["index"]]}
        for error in failure.problem.get("errors", ())
    ]
    problem = {**failure.problem, "errors": errors} if errors else failure.problem
    return Refused(failure.status, problem)
