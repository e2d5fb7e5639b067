"""Appends to one partition: in order for each producer, and repeated only where that is safe.

The batches of one turn of the event loop go to each broker together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from time import monotonic
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from kio.schema.errors import ErrorCode
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v9.response import PartitionProduceResponse, ProduceResponse
from kio.schema.types import TopicName
from kio.static.primitive import Records, i16, i32

from app.errors import AppendBrokeOff, BackendUnavailable, CommitTimedOut, NotSupportedByBackend
from app.settings import Settings
from app.store.kafka.cluster import RETRY_SECONDS, Cluster
from app.store.kafka.errors import STALE, NoAnswer, error_of, milliseconds
from app.store.kafka.marks import Marks
from app.store.kafka.metrics import KafkaMetrics
from engine.config import LogConfig
from engine.errors import (
    CorruptBatch,
    InvalidRecord,
    Overloaded,
    ProducerError,
    ProducerFenced,
    SequenceGap,
    TooLarge,
    UnsupportedMagic,
)
from engine.log.results import Appended, LogTag
from engine.records.batch import BatchView
from engine.records.header import (
    MAGIC_2,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    frame_size,
    parse_header,
)
from engine.types import Buffer, TopicPartition

LANES: Final = 2
"""Connections to each broker. A broker answers the requests of one connection in order, so that a
partition that waits for its replicas delays the others of its connection."""
ACKS: Final[Mapping[str, i16]] = {"0": i16(0), "1": i16(1), "all": i16(-1)}
ANSWER_MARGIN_MS: Final = 1_000
"""A broker gives up waiting for replicas this long before the request's time is over here."""


class _Part(NamedTuple):
    """One batch for one partition, in a request that is being gathered."""

    partition: TopicPartition
    records: bytes
    response: asyncio.Future[PartitionProduceResponse | None]


class ProduceRequests:
    """Sends batches, and holds no more of them than a limit. Belongs to the event loop."""

    def __init__(self, settings: Settings, cluster: Cluster, metrics: KafkaMetrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._limit_bytes = settings.max_kafka_produce_bytes
        timeout_ms = min(settings.commit_timeout_ms, settings.kafka_request_timeout_ms)
        self._timeout = milliseconds(max(timeout_ms - ANSWER_MARGIN_MS, timeout_ms // 2))
        self._gathered: dict[tuple[int, str, str], list[_Part]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def hold(self, size_bytes: int) -> None:
        """Count the bytes of an append until `release`; raises Overloaded beyond the limit."""
        held = self._metrics.in_flight_bytes["produce"]
        if held and held + size_bytes > self._limit_bytes:
            raise Overloaded(
                "the brokers take appends more slowly than they arrive",
                limit="max_kafka_produce_bytes",
                limit_bytes=self._limit_bytes,
            )
        self._metrics.in_flight_bytes["produce"] += size_bytes

    def release(self, size_bytes: int) -> None:
        self._metrics.in_flight_bytes["produce"] -= size_bytes

    def send(
        self, node: int, partition: TopicPartition, acks: str, records: bytes
    ) -> asyncio.Future[PartitionProduceResponse | None]:
        """Send one batch at the end of the loop's turn; None is the response for `acks=0`.

        The future fails with NoAnswer, or with what a request of another version raises.
        """
        loop = asyncio.get_running_loop()
        response: asyncio.Future[PartitionProduceResponse | None] = loop.create_future()
        if not self._gathered:
            loop.call_soon(self._send_gathered)
        lane = f"produce-{partition.partition % LANES}"
        parts = self._gathered.setdefault((node, lane, acks), [])
        parts.append(_Part(partition, records, response))
        return response

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for (node, lane, acks), parts in gathered.items():
            while parts:
                # A request has one batch of a partition.
                first = {part.partition: part for part in reversed(parts)}
                together = [part for part in parts if first[part.partition] is part]
                parts = [part for part in parts if first[part.partition] is not part]  # noqa: PLW2901  # the rest
                task = asyncio.create_task(self._send(node, lane, acks, together))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    async def _send(self, node: int, lane: str, acks: str, parts: list[_Part]) -> None:
        request = ProduceRequest(
            transactional_id=None,
            acks=ACKS[acks],
            timeout=self._timeout,
            topic_data=tuple(_topic_data(parts)),
        )
        began = monotonic()
        try:
            if acks == "0":
                await self._cluster.send_only(node, request, lane=lane)
                _settle(parts, {part.partition: None for part in parts})
                return
            response = await self._cluster.send(node, request, ProduceResponse, lane=lane)
        except Exception as error:  # noqa: BLE001  # every part gets it
            self._metrics.failed("produce", "no_answer")
            for part in parts:
                if not part.response.done():
                    part.response.set_exception(error)
            return
        self._metrics.answered("produce", node, monotonic() - began)
        answers: dict[TopicPartition, PartitionProduceResponse | None] = {
            TopicPartition(str(topic.name), int(one.index)): one
            for topic in response.responses
            for one in topic.partition_responses
        }
        for answer in answers.values():
            if answer is not None and answer.error_code is not ErrorCode.none:
                self._metrics.failed("produce", answer.error_code.name)
        _settle(parts, answers)

    async def close(self) -> None:
        """Wait for the responses of what was sent."""
        await asyncio.gather(*self._sending, return_exceptions=True)


def _topic_data(parts: list[_Part]) -> list[TopicProduceData]:
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for (topic, number), records, _ in parts:
        data = PartitionProduceData(index=i32(number), records=Records(records))
        by_topic.setdefault(topic, []).append(data)
    return [
        TopicProduceData(name=TopicName(topic), partition_data=tuple(data))
        for topic, data in by_topic.items()
    ]


def _settle(
    parts: list[_Part], answers: Mapping[TopicPartition, PartitionProduceResponse | None]
) -> None:
    for part in parts:
        if part.response.done():  # its request has ended
            continue
        if part.partition in answers:
            part.response.set_result(answers[part.partition])
        else:
            missing = NoAnswer(f"no response for {part.partition}", was_sent=True)
            part.response.set_exception(missing)


MAX_IN_FLIGHT: Final = 5
"""Requests to a broker for one partition; Kafka's max.in.flight.requests.per.connection."""

_UNKNOWN_OUTCOME: Final = frozenset(
    {
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_server_error,
        ErrorCode.network_exception,
    }
)
"""Answers after which the batch may be in the log."""


_OF_PRODUCER: Final[Mapping[ErrorCode, type[ProducerError]]] = {
    ErrorCode.out_of_order_sequence_number: SequenceGap,
    ErrorCode.duplicate_sequence_number: SequenceGap,
    ErrorCode.unknown_producer_id: SequenceGap,
    ErrorCode.invalid_producer_epoch: ProducerFenced,
    ErrorCode.producer_fenced: ProducerFenced,
}
"""Answers about a producer's number or sequence; the broker does not say which one it expected."""


class PartitionAppends:
    """What is being appended to one partition. Belongs to the event loop."""

    def __init__(
        self,
        partition: TopicPartition,
        *,
        cluster: Cluster,
        requests: ProduceRequests,
        marks: Marks,
        timeout_ms: int,
    ) -> None:
        self._partition = partition
        self._cluster = cluster
        self._requests = requests
        self._marks = marks
        self._timeout_seconds = timeout_ms / 1000
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        """By producer id, while it has a batch that waits or is in flight."""

    async def append(self, batches: Sequence[tuple[BatchHeader, bytes]], acks: str) -> Appended:
        """Append batches one after the other: a request to Kafka has one of a partition.

        Raises what the broker refuses; BackendUnavailable if nothing was written in time, and
        CommitTimedOut if that is not known. AppendBrokeOff if that happens after the first batch.
        """
        size_bytes = sum(len(records) for _, records in batches)
        self._requests.hold(size_bytes)
        try:
            done: list[Appended] = []
            for header, records in batches:
                try:
                    done.append(await self._append(header, records, acks))
                except Exception as error:
                    if not done:
                        raise
                    raise _broke_off(error, done, header) from error
        finally:
            self._requests.release(size_bytes)
        return done[0] if len(done) == 1 else _joined(done)

    async def _append(self, header: BatchHeader, records: bytes, acks: str) -> Appended:
        """Send a batch until it has an answer, or its time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_seconds
        may_be_written, why = False, "the broker has not answered"
        try:
            async with asyncio.timeout_at(deadline), self._turn(header), self._room:
                known_end = self._marks.watermarks.log_end_offset
                while True:
                    may_be_written_before = may_be_written
                    try:
                        leader = self._cluster.leader(*self._partition)
                        sent = self._requests.send(leader.node, self._partition, acks, records)
                        may_be_written = True
                        answer = await sent
                        if answer is None:
                            return _unacknowledged(header, self._marks)
                        code = answer.error_code
                        if code is ErrorCode.none:
                            self._saw(answer, header, acks, leader.epoch)
                            return _appended(header, answer, known_end, self._marks)
                        may_be_written = may_be_written_before or _may_be_written(answer)
                        if code not in STALE or (may_be_written and not header.has_producer_id):
                            raise self._refusal(answer, header, may_be_written=may_be_written)
                        why = f"the broker answers {code.name.upper()}"
                    except NoAnswer as error:
                        why, may_be_written = str(error), may_be_written_before or error.was_sent
                        if may_be_written and not header.has_producer_id:
                            raise CommitTimedOut(
                                f"{why}; the batch may be in the log, and is not sent again, "
                                "because it has no producer id and sequence"
                            ) from error
                    if self._cluster.is_lost:
                        raise TimeoutError  # noqa: TRY301  # as if the time were over
                    await asyncio.sleep(RETRY_SECONDS)
                    await self._cluster.refresh()
        except TimeoutError as error:
            if may_be_written:
                raise CommitTimedOut(
                    f"the cluster has not confirmed {self._partition} in time: {why}"
                ) from error
            raise BackendUnavailable(f"nothing was written in time: {why}") from error

    def _turn(self, header: BatchHeader) -> AbstractAsyncContextManager[None]:
        """Return what lets the batches of a producer go one after the other."""
        if not header.has_producer_id:
            return nullcontext()
        turn = self._turns.get(header.producer_id)
        if turn is None:
            turn = self._turns[header.producer_id] = asyncio.Lock()
        return turn

    def _saw(
        self, answer: PartitionProduceResponse, header: BatchHeader, acks: str, epoch: int
    ) -> None:
        end_offset = int(answer.base_offset) + header.last_offset_delta + 1
        self._marks.saw(
            log_start_offset=max(int(answer.log_start_offset), 0),
            high_watermark=end_offset if acks == "all" else 0,
            log_end_offset=end_offset,
            leader_epoch=epoch,
        )

    def _refusal(
        self, answer: PartitionProduceResponse, header: BatchHeader, *, may_be_written: bool
    ) -> Exception:
        """Return the error of the contract for a broker's refusal.

        It is about one attempt only: an earlier one may have written the batch.
        """
        code, message = answer.error_code, answer.error_message
        if may_be_written:
            return CommitTimedOut(
                f"{self._partition} may have the batch: the broker answers {code.name.upper()}"
            )
        if code in {ErrorCode.message_too_large, ErrorCode.record_list_too_large}:
            return _too_large(header, header.size_bytes - 1, "the cluster's limit")
        if code in _OF_PRODUCER:
            return _OF_PRODUCER[code](
                f"{self._partition}: the broker answers {code.name.upper()} to producer "
                f"{header.producer_id}, epoch {header.producer_epoch}, "
                f"sequence {header.base_sequence}",
                producer_id=header.producer_id,
                epoch=header.producer_epoch,
                received=header.base_sequence,
            )
        if answer.record_errors:
            listed = [
                {"index": int(one.batch_index), "detail": one.batch_index_error_message or ""}
                for one in answer.record_errors
            ]
            error = error_of(code, message)
            return type(error)(str(error), listed) if isinstance(error, InvalidRecord) else error
        return error_of(code, message)


def _may_be_written(answer: PartitionProduceResponse) -> bool:
    """Return whether the batch may be in the log after an error.

    A broker that loses the leadership while it waits for the replicas answers
    NOT_LEADER_OR_FOLLOWER, as one that has written nothing: then only the offset differs.
    """
    return answer.base_offset >= 0 or answer.error_code in _UNKNOWN_OUTCOME


def split(data: Buffer, config: LogConfig, *, checked: bool) -> Sequence[tuple[BatchHeader, bytes]]:
    """Return each batch with its header; raises what is wrong with any of them."""
    batches = []
    view = memoryview(data)
    position, end = 0, len(view)
    while position < end or position == 0:
        size_bytes = frame_size(view, position)
        if size_bytes is None or position + size_bytes > end:
            raise CorruptBatch(f"the batch at byte {position} is incomplete", position=position)
        header = parse_header(view, position)
        if header.magic != MAGIC_2:
            raise UnsupportedMagic(
                f"the cluster takes batches of magic 2, not {header.magic}", magic=header.magic
            )
        records = bytes(view[position : position + size_bytes])
        if not checked:
            _ensure_acceptable(header, records, config)
        batches.append((header, records))
        position += size_bytes
    return batches


def _ensure_acceptable(header: BatchHeader, records: bytes, config: LogConfig) -> None:
    """Raise what is wrong with a client's batch, as far as its header says."""
    if header.is_control:
        raise InvalidRecord("control batches are the broker's own")
    if header.is_transactional:
        raise NotSupportedByBackend(
            "a batch of a transaction needs a service that stores the logs in its own data "
            "directories; to a Kafka cluster, append without transactions"
        )
    if header.size_bytes > config.max_message_bytes:
        raise _too_large(header, config.max_message_bytes, "max.message.bytes")
    BatchView(records).ensure_intact()


def _too_large(header: BatchHeader, limit_bytes: int, what: str) -> TooLarge:
    return TooLarge(
        f"a batch of {header.size_bytes} bytes is larger than {what} ({limit_bytes})",
        limit="max.message.bytes",
        limit_bytes=limit_bytes,
        actual_bytes=header.size_bytes,
    )


def _appended(
    header: BatchHeader, answer: PartitionProduceResponse, known_end: int, marks: Marks
) -> Appended:
    base_offset = int(answer.base_offset)
    timestamp, attributes = header.max_timestamp, header.attributes
    if answer.log_append_time is not None:
        timestamp = round(answer.log_append_time.timestamp() * 1000)
        attributes |= TIMESTAMP_TYPE_MASK
    # Brokers answer a repetition as the first time. What is below an offset that was the log's end
    # before was written before.
    is_duplicate = header.has_producer_id and base_offset < known_end
    last_offset = base_offset + header.last_offset_delta
    stored = header._replace(
        base_offset=base_offset, leader_epoch=marks.leader_epoch, attributes=attributes
    )
    return Appended(
        base_offset,
        last_offset,
        header.records_count,
        timestamp,
        is_duplicate,
        marks.watermarks,
        LogTag(marks.leader_epoch, last_offset + 1, header.crc),
        (stored,),
    )


def _unacknowledged(header: BatchHeader, marks: Marks) -> Appended:
    """Return the result of `acks=0`: no broker says where the batch is."""
    tag = LogTag(marks.leader_epoch, 0, header.crc)
    count, timestamp = header.records_count, header.max_timestamp
    return Appended(-1, -1, count, timestamp, False, marks.watermarks, tag, (header,))


def _joined(done: Sequence[Appended]) -> Appended:
    """Return the result of several batches; other producers' may lie between them."""
    first, last = done[0], done[-1]
    return last._replace(
        base_offset=first.base_offset,
        records_count=sum(one.records_count for one in done),
        timestamp=max(one.timestamp for one in done),
        is_duplicate=all(one.is_duplicate for one in done),
        headers=[header for one in done for header in one.headers],
    )


def _broke_off(error: Exception, done: Sequence[Appended], header: BatchHeader) -> AppendBrokeOff:
    """Return the error after some batches were written; a producer may send all of them again."""
    return AppendBrokeOff(
        error,
        has_written=True,
        may_repeat=header.has_producer_id,
        committed_records=sum(one.records_count for one in done),
        base_offset=done[0].base_offset,
        last_offset=done[-1].last_offset,
    )
