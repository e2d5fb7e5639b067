"""Append: parsed parameters and body bytes in, a receipt out; for `app.wire` and routes alike.

Small appends run on the event loop: a write into the page cache is cheaper than a thread hand-over.
Large and compressed ones run on a worker, and so do those that the log cannot complete at once, for
example because it has to roll or open a file. `acks=all` waits for the flush round that contains
the append; no thread waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import chain
from typing import ClassVar, Final, NamedTuple, Self, TypeVar

from app.codecs.calls import AppendCall, with_headers
from app.codecs.receipts import header_list, marks_of, receipt_body, receipt_head
from app.codecs.records_in import read_records
from app.errors import (
    AppendBrokeOff,
    AppendOutcomeUnknown,
    BackendRefused,
    BackendUnavailable,
    CommitTimedOut,
    MalformedRequest,
    NotEnoughReplicas,
    NotSupportedByBackend,
)
from app.http.answers import Answer, Body
from app.operations.deliveries.claim import Claim, Delivery
from app.operations.deliveries.idempotency_key import (
    HEADER,
    key_of,
    keyed_delivery,
    replayed,
    run_to_end,
)
from app.operations.exchange import Exchange
from app.operations.request_content import BATCH_TYPES, brings_ndjson, media_type_of
from app.operations.service import Service
from app.store.port import Partition, Run
from engine.errors import CorruptBatch, EngineError, WouldBlock
from engine.log.results import Appended
from engine.records.budget import DecodeBudget, always_wanted
from engine.records.builder import NewRecord, RecordColumns, build_batch
from engine.records.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC_2,
    MAGIC_POSITION,
    Codec,
    frame_size,
    parse_header,
)
from engine.types import NO_PRODUCER_ID, Buffer

T = TypeVar("T")

APPEND_ERRORS: Final = (
    EngineError,
    AppendBrokeOff,
    BackendRefused,
    BackendUnavailable,
    CommitTimedOut,
    NotEnoughReplicas,
)
"""Errors of an append to one partition; those of a request to several do not depend on them."""

STATUS: Final = {"0": 202, "1": 201, "all": 201}

SHARED_BYTES: Final = 16 * 1024
"""Bodies of at most this size together share a batch; the `batch.size` of Kafka's producer."""

_STAYS_WHOLE: Final = "a client's batch is not shared"

_PLAIN: Final = AppendCall()[1:]
"""The rest of a call that has only acks."""


class Way(Enum):
    """How a body is appended."""

    SHARED = "together with others of the same turn"
    """It is one batch without a producer or condition to check; a log that is not in this process
    checks them itself, when it has everything."""
    ALONE = "alone, on the event loop"
    ON_A_WORKER = "alone, on a worker: it is large or compressed"


class Receipt(NamedTuple):
    """The answer to an append, with header lines ready for the wire, without Content-Length.

    Every answer uses the same bytes: `as_answer` splits the lines for ASGI.
    """

    status: int
    head: bytes
    body: bytes

    def as_answer(self) -> Answer:
        return Answer(self.status, header_list(self.head), self.body)


class AppendOptions(NamedTuple):
    """The options in the head of an append: the same whenever that head is sent again."""

    call: AppendCall
    can_coalesce: bool
    """Whether the log has no producer and no condition to check."""
    is_ndjson: bool = False

    @classmethod
    def of(cls, head: Mapping[bytes, bytes], call: AppendCall) -> AppendOptions:
        call = with_headers(call, head)
        return cls(call, call[1:] == _PLAIN)


class Append(ABC):
    """One append of one request, in steps that do not wait: the caller waits between them.

    `options_of` checks the headers. `run` appends a body on this thread; once everything below
    `end_offset` is on disk, if `call` requires that, `receipt` is the answer. Instead of `run`, a
    body may be taken and appended together with those of other requests.
    """

    kind: ClassVar[bytes]
    """The last part of the path where the appended records can be read."""

    is_checked: ClassVar[bool]
    """Whether our own builder makes the batch, so that the log need not check it."""

    __slots__ = (
        "_can_coalesce",
        "_is_ndjson",
        "_service",
        "appended",
        "call",
        "claim",
        "partition",
    )

    appended: Appended
    """The log's result, once the append is in the log."""

    claim: Claim | None
    """That of its delivery, if it has an id; the code that sets it closes it."""

    def __init__(self, service: Service, partition: Partition, options: AppendOptions) -> None:
        self._service = service
        self.partition = partition
        self.claim = None
        self.call, self._can_coalesce, self._is_ndjson = options
        if not (partition.is_local or self._can_coalesce):
            ensure_unconditional(self.call)

    @classmethod
    @abstractmethod
    def options_of(cls, head: Mapping[bytes, bytes], call: AppendCall) -> AppendOptions:
        """Return the call with the options in the headers, by name.

        Raises UnsupportedMediaType, and what `with_headers` raises.
        """

    @abstractmethod
    def way_of(self, body: Body) -> Way:
        """Return how this body is appended."""

    @abstractmethod
    def take(self, body: Body) -> None:
        """Decode and keep the body's records; raises if the body is invalid."""

    @abstractmethod
    def batch(self, others: Sequence[Self] = ()) -> Buffer:
        """Return one batch for the log, with the bodies of the other appends too."""

    @property
    @abstractmethod
    def room_bytes(self) -> int:
        """Bytes of bodies that may share a batch; a larger body has its own batch."""

    def run_now(self, body: Body) -> None:
        """Append the body, all of it or nothing; raises if it is invalid.

        Raises WouldBlock if the append has to wait: call `run`.
        """
        self.take(body)
        call = self.call
        self.on_appended(
            self.partition.append_now(
                self.batch(),
                acks=call.acks,
                checked=self.is_checked,
                expected_end_offset=call.expected_end_offset,
                expected_tag=call.expected_tag,
            )
        )

    async def run(self, body: Body, run: Run, budget: DecodeBudget) -> None:
        """Append a body of any size; it is parsed and encoded by `run`."""
        call = self.call
        self.on_appended(
            await self.partition.append(
                partial(self._encoded, body),
                acks=call.acks,
                checked=self.is_checked,
                run=run,
                expected_end_offset=call.expected_end_offset,
                expected_tag=call.expected_tag,
                budget=budget,
            )
        )

    def _encoded(self, body: Body) -> Buffer:
        """Return the batches of this body alone."""
        self.take(body)
        return self.batch()

    @abstractmethod
    def on_appended(self, appended: Appended, others: Sequence[Self] = ()) -> None:
        """Record the log's result, also for the other appends, and release their records."""

    @property
    def producer(self) -> tuple[int, int]:
        """The producer id and sequence for later queries of the outcome; the id may be none."""
        return self.call.producer_id, self.call.base_sequence

    @property
    def end_offset(self) -> int:
        """The end offset of the append."""
        return self.appended.last_offset + 1

    def receipt(self) -> Receipt:
        """Return the receipt: the append's offsets, and those of the log."""
        appended, partition, acks = self.appended, self.partition, self.call.acks
        marks = marks_of(partition, appended)
        status = 200 if appended.is_duplicate else STATUS[acks]
        head = receipt_head(partition, appended, marks, self.kind)
        return Receipt(status, head, receipt_body(partition, appended, marks, acks))

    def explained(self, error: Exception) -> Exception:
        """Return the error of the wait, with the URL of the outcome if there is one."""
        if not isinstance(error, CommitTimedOut):
            return error
        producer_id, sequence = self.producer
        if producer_id == NO_PRODUCER_ID:
            return error
        url = f"{self.partition.path.decode()}producers/{producer_id}/appends/{sequence}"
        headers = {"link": f'<{url}>; rel="status"'}
        return AppendOutcomeUnknown(str(error), headers=headers, outcome=url)


class RecordsAppend(Append):
    """The records of a JSON or NDJSON body, in one batch."""

    kind = b"records"
    is_checked = True

    __slots__ = ("records",)

    records: list[NewRecord] | RecordColumns
    """The decoded records, until they are appended."""

    @classmethod
    def options_of(cls, head: Mapping[bytes, bytes], call: AppendCall) -> AppendOptions:
        options = AppendOptions.of(head, call)
        if HEADER in head and options.call.producer_id != NO_PRODUCER_ID:
            raise MalformedRequest(
                "Idempotency-Key and Producer-Id both identify a repetition: send one of them",
                header="idempotency-key",
            )
        return options._replace(is_ndjson=brings_ndjson(head))

    def way_of(self, body: Body) -> Way:
        if len(body) > self._service.settings.inline_append_bytes:
            return Way.ON_A_WORKER
        return Way.SHARED if self._can_coalesce or not self.partition.is_local else Way.ALONE

    def take(self, body: Body) -> None:
        service = self._service
        self.records = read_records(
            body,
            is_ndjson=self._is_ndjson,
            max_records=service.settings.max_records_per_request,
            now_ms=service.clock.now_ms(),
            config=self.partition.config,
        )
        if self.claim is not None:
            self.claim.mark(self.records)

    def batch(self, others: Sequence[Self] = ()) -> bytearray:
        records: Iterable[NewRecord] = self.records
        if others:
            records = _joined([self.records, *[other.records for other in others]])
        return build(self.partition, self.call, records)

    def _encoded(self, body: Body) -> Buffer:
        batch = super()._encoded(body)
        self.records = []  # here, on a worker: releasing a thousand records takes long
        return batch

    def on_appended(self, appended: Appended, others: Sequence[Self] = ()) -> None:
        if others:
            everybody = (self, *others)
            parts = appended.shared_out([_share(one.records) for one in everybody])
            for one, part in zip(everybody, parts, strict=True):
                one.on_appended(part)
            return
        self.appended = appended
        self.records = []
        if self.claim is not None:
            self.claim.written(self.partition, appended)

    @property
    def room_bytes(self) -> int:
        if not self._can_coalesce:
            return 0
        return min(SHARED_BYTES, self.partition.config.max_message_bytes - HEADER_BYTES)


class BatchesAppend(Append):
    """Record batches exactly as the client encoded them."""

    kind = b"batches"
    is_checked = False

    __slots__ = ("_data",)

    _data: Buffer

    @classmethod
    def options_of(cls, head: Mapping[bytes, bytes], call: AppendCall) -> AppendOptions:
        options = AppendOptions.of(head, call)
        media_type_of(head, BATCH_TYPES)
        if HEADER in head:
            raise MalformedRequest(
                "raw batches are stored as they are and identify a repetition by the producer id "
                "and sequence inside; Idempotency-Key is for JSON and NDJSON",
                header="idempotency-key",
            )
        if options.call.producer_id != NO_PRODUCER_ID:
            raise MalformedRequest("raw batches contain their producer", header="producer-id")
        return options

    def way_of(self, body: Body) -> Way:
        is_local = self.partition.is_local
        is_large = len(body) > self._service.settings.inline_append_bytes
        if is_large or (is_local and _is_compressed(body)):
            return Way.ON_A_WORKER
        if not is_local:
            return Way.SHARED
        if not self._can_coalesce or len(body) < HEADER_BYTES or body[MAGIC_POSITION] != MAGIC_2:
            return Way.ALONE
        header = parse_header(body)
        is_one = header.size_bytes == len(body) and not header.has_producer_id
        return Way.SHARED if is_one else Way.ALONE

    def take(self, body: Body) -> None:
        self._data = body

    def batch(self, others: Sequence[Self] = ()) -> Buffer:
        assert not others, _STAYS_WHOLE
        return self._data

    @property
    def room_bytes(self) -> int:
        return 0

    def on_appended(self, appended: Appended, others: Sequence[Self] = ()) -> None:
        assert not others, _STAYS_WHOLE
        self.appended = appended
        self._data = bytes(self._data[:HEADER_BYTES])

    @property
    def producer(self) -> tuple[int, int]:
        header = parse_header(self._data)
        return header.producer_id, header.base_sequence


def ensure_unconditional(call: AppendCall) -> None:
    """Raise NotSupportedByBackend for a condition on a log that is not in this process."""
    if call.expected_end_offset is not None or call.expected_tag is not None:
        raise NotSupportedByBackend(
            "Kafka has no append that depends on the log's end: leave out If-Match and "
            "Expected-Offset, or use a producer id and sequence to write each record once"
        )


async def run_here(work: Callable[[], T]) -> T:
    """Run work that is short on the event loop."""
    return work()


def build(partition: Partition, call: AppendCall, records: Iterable[NewRecord]) -> bytearray:
    """Return the records as one batch, with the topic's codec."""
    codec, level = partition.config.stored_codec or (Codec.NONE, None)
    return build_batch(
        records,
        codec=codec,
        level=level,
        producer_id=call.producer_id,
        producer_epoch=call.producer_epoch,
        base_sequence=call.base_sequence,
    )


def _share(records: list[NewRecord] | RecordColumns) -> tuple[int, int]:
    """Return the number of records and their largest timestamp."""
    if isinstance(records, RecordColumns):
        return len(records), max(records.timestamps)
    return len(records), max([timestamp for timestamp, *_ in records])


def _joined(parts: Sequence[list[NewRecord] | RecordColumns]) -> Iterable[NewRecord]:
    columns = [part for part in parts if isinstance(part, RecordColumns)]
    return RecordColumns.of(columns) if len(columns) == len(parts) else chain(*parts)


def _is_compressed(data: Body) -> bool:
    """Whether any of the batches is compressed. The log refuses incomplete batches."""
    position, end = 0, len(data)
    with suppress(CorruptBatch):
        while position < end and (size := frame_size(data, position)) is not None:
            flags = position + ATTRIBUTES_POSITION + 1
            if flags < end and data[flags] & CODEC_MASK:
                return True
            position += size
    return False


async def append_records(exchange: Exchange, partition: Partition, call: AppendCall) -> Answer:
    """Append the records of a JSON or NDJSON body, in one batch."""
    return await _serve(exchange, partition, RecordsAppend, call)


async def append_batches(exchange: Exchange, partition: Partition, call: AppendCall) -> Answer:
    """Append record batches exactly as the client encoded them: all of them, or none."""
    return await _serve(exchange, partition, BatchesAppend, call)


async def _serve(
    exchange: Exchange, partition: Partition, kind: type[Append], call: AppendCall
) -> Answer:
    append = kind(exchange.service, partition, kind.options_of(exchange.head, call))
    key = key_of(exchange.head)
    body = await exchange.body()
    if key is not None:
        return await _append_once(exchange, append, body, key)
    return await complete(append, exchange, body)


async def complete(append: Append, exchange: Exchange, body: Body) -> Answer:
    """Append a whole body; return the receipt, with acks=all once the append is on disk."""
    await run_append(append, exchange, body)
    return await answer_of(append)


async def _append_once(exchange: Exchange, append: Append, body: Body, key: bytes) -> Answer:
    """Append unless a request with this key has; a repetition gets the first offsets."""
    call, media_type = append.call, exchange.head.get(b"content-type")
    expected = (call.expected_end_offset, call.expected_tag and tuple(call.expected_tag))
    question = (append.partition.path, append.kind, call.acks, expected, media_type)
    delivery = await keyed_delivery(exchange, append.partition, key, body, question)
    return await run_to_end(_deliver(exchange, append, body, delivery))


async def _deliver(exchange: Exchange, append: Append, body: Body, delivery: Delivery) -> Answer:
    with await exchange.service.deliveries.claimed(delivery) as claim:
        repeated = claim.repeated(append.partition)
        if repeated is None:
            append.claim = claim
            # A repetition may wait for this append, even if its client disconnects.
            await run_append(append, exchange, body, always_wanted)
    if repeated is None:
        return await answer_of(append)
    append.appended = repeated
    await append.partition.committed(append.end_offset)
    return replayed(append.receipt().as_answer())


async def run_append(
    append: Append,
    exchange: Exchange,
    body: Body,
    ensure_wanted: Callable[[], None] | None = None,
) -> None:
    """Append a whole body, here or on a worker; `ensure_wanted` as for `Exchange.decode`."""
    if append.way_of(body) is not Way.ON_A_WORKER:
        if not append.partition.is_local:
            await append.run(body, run_here, exchange.budget)
            return
        with suppress(WouldBlock):
            append.run_now(body)
            return
    await append.run(body, exchange.decoding(exchange.write, ensure_wanted), exchange.budget)


async def answer_of(append: Append) -> Answer:
    """Return the receipt, with acks=all once the append is on disk."""
    if append.call.acks == "all":
        try:
            await append.partition.committed(append.end_offset)
        except CommitTimedOut as error:
            raise append.explained(error) from None
    return append.receipt().as_answer()
