"""Append: parsed parameters and body bytes in, a receipt out; for hot requests and routes alike.

Small appends run on the event loop: a write into the page cache is cheaper than a hop to a thread
and back. Large and compressed ones are taken apart on a worker, and what the log cannot do at once
is done there: that it rolls, for example, or opens a file. Whoever wants `acks=all` waits for the
flush round that carries it; no thread waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import ClassVar, Final, NamedTuple, Self

from app.codecs.calls import AppendCall, with_headers
from app.codecs.receipts import header_list, receipt_body, receipt_head
from app.codecs.records_in import read_records
from app.http.answers import Answer, Body
from app.http.problems import AppendOutcomeUnknown, CommitTimedOut, MalformedRequest
from app.operations.append.idempotency import Finish, fingerprint, key_of
from app.operations.exchange import Exchange
from app.operations.request_content import BATCH_TYPES, brings_ndjson, media_type_of
from app.operations.service import Service
from app.store.local.partition import LocalPartition
from engine.errors import CorruptBatch
from engine.guard import WouldWait
from engine.log.append.codec import stored_codec
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

STATUS: Final = {"0": 202, "1": 201, "all": 201}

SHARED_BYTES: Final = 16 * 1024
"""So many bytes of bodies at most become one batch; the `batch.size` of Kafka's producer."""

_STAYS_WHOLE: Final = "what a client encoded shares no batch"

_PLAIN: Final = AppendCall()[1:]
"""What a call asks for beside its acks, if it asks for nothing."""


class Receipt(NamedTuple):
    """The answer to an append, its header lines ready for the wire: without the length, each ended.

    The same bytes on every lane: `as_answer` takes the lines apart.
    """

    status: int
    head: bytes
    body: bytes

    def as_answer(self) -> Answer:
        return Answer(self.status, header_list(self.head), self.body)


class AppendOptions(NamedTuple):
    """What the head of an append asks for: the same whenever that head comes again."""

    call: AppendCall
    can_coalesce: bool
    """Whether there is no producer and no condition for the log to judge."""
    is_ndjson: bool

    @classmethod
    def of(
        cls, head: Mapping[bytes, bytes], call: AppendCall, *, is_ndjson: bool = False
    ) -> AppendOptions:
        call = with_headers(call, head)
        return cls(call, call[1:] == _PLAIN, is_ndjson)


class Append(ABC):
    """One append of one request, in steps that do not wait: who calls them, waits in between.

    `judge` judges the headers. `run` puts a body into the log, on this thread; when everything
    below `end_offset` is on disk, if `call` asks for that, `receipt` tells what was done. Instead
    of `run`, a body may be taken, and put into the log together with those of others.
    """

    kind: ClassVar[bytes]
    """Where what was appended can be read: the last piece of that path."""

    is_checked: ClassVar[bool]
    """Whether our own builder makes the batch, so that the log need not look into it."""

    __slots__ = ("_can_coalesce", "_is_ndjson", "_service", "appended", "call", "partition")

    appended: Appended
    """What the log did, once it is in the log."""

    def __init__(self, service: Service, partition: LocalPartition, options: AppendOptions) -> None:
        self._service = service
        self.partition = partition
        self.call, self._can_coalesce, self._is_ndjson = options

    @classmethod
    @abstractmethod
    def options_of(cls, head: Mapping[bytes, bytes], call: AppendCall) -> AppendOptions:
        """Return the call with what the headers, by name, ask for besides.

        Raises UnsupportedMediaType, and what `with_headers` raises.
        """

    def is_light(self, body: Body) -> bool:
        """Whether the body is small enough for the event loop; else it belongs on a worker."""
        return len(body) <= self._service.settings.inline_append_bytes

    @abstractmethod
    def can_coalesce(self, body: Body) -> bool:
        """Whether it is one batch for which the log has no producer and no condition to judge."""

    @abstractmethod
    def take(self, body: Body) -> None:
        """Keep what the body brings, or raise what is wrong with it."""

    @abstractmethod
    def batch(self, others: Sequence[Self] = ()) -> Buffer:
        """Return what the log is given: one batch, of these others' bodies too."""

    @property
    @abstractmethod
    def room_bytes(self) -> int:
        """How many bytes of bodies may become one batch; a larger one has a batch to itself."""

    def run(self, body: Body, *, at_once: bool, budget: DecodeBudget | None = None) -> None:
        """Put the body into the log, or raise what is wrong with it: all of it, or nothing.

        On the event loop `at_once`: then WouldWait may be raised, and it belongs on a worker.
        `budget` is needed for a body that is not light.
        """
        self.take(body)
        batch, checked = self.batch(), self.is_checked
        self.on_appended(
            _append(
                self._service,
                self.partition,
                self.call,
                batch,
                checked=checked,
                at_once=at_once,
                budget=budget,
            )
        )

    @abstractmethod
    def on_appended(self, appended: Appended, others: Sequence[Self] = ()) -> None:
        """Note what the log did with the batch, of these others' bodies too, and let go of them."""

    @property
    def producer(self) -> tuple[int, int]:
        """The id and the sequence that ask for the outcome later; the id may be none."""
        return self.call.producer_id, self.call.base_sequence

    @property
    def end_offset(self) -> int:
        """One past the last offset of what was appended."""
        return self.appended.last_offset + 1

    def receipt(self) -> Receipt:
        """Return what was done, and where the log is now."""
        appended, partition, acks = self.appended, self.partition, self.call.acks
        marks = partition.log.watermarks
        status = 200 if appended.is_duplicate else STATUS[acks]
        head = receipt_head(partition, appended, marks, self.kind)
        return Receipt(status, head, receipt_body(partition, appended, marks, acks))

    def explained(self, error: Exception) -> Exception:
        """Return the error of the wait; with the URL that tells the outcome, if there is one."""
        producer_id, sequence = self.producer
        if not isinstance(error, CommitTimedOut) or producer_id == NO_PRODUCER_ID:
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
    """What was taken."""

    @classmethod
    def options_of(cls, head: Mapping[bytes, bytes], call: AppendCall) -> AppendOptions:
        return AppendOptions.of(head, call, is_ndjson=brings_ndjson(head))

    def can_coalesce(self, body: Body) -> bool:  # noqa: ARG002  # whatever it is, one batch is made of it
        return self._can_coalesce

    def take(self, body: Body) -> None:
        service = self._service
        self.records = read_records(
            body,
            is_ndjson=self._is_ndjson,
            max_records=service.settings.max_records_per_request,
            now_ms=service.clock.now_ms(),
            config=self.partition.log.config,
        )

    def batch(self, others: Sequence[Self] = ()) -> bytearray:
        records: Iterable[NewRecord] = self.records
        if others:
            records = _joined([self.records, *[other.records for other in others]])
        return _build(self.partition, self.call, records)

    def on_appended(self, appended: Appended, others: Sequence[Self] = ()) -> None:
        everybody = (self, *others)
        parts: Iterable[Appended] = (appended,)
        if others:
            parts = appended.shared_out([_share(one.records) for one in everybody])
        for one, part in zip(everybody, parts, strict=True):
            one.appended = part
            one.records = []  # a thousand of them take their time: not on the event loop

    @property
    def room_bytes(self) -> int:
        return min(SHARED_BYTES, self.partition.log.config.max_message_bytes - HEADER_BYTES)


class BatchesAppend(Append):
    """Record batches exactly as the client encoded them."""

    kind = b"batches"
    is_checked = False

    __slots__ = ("_data",)

    _data: Buffer

    @classmethod
    def options_of(cls, head: Mapping[bytes, bytes], call: AppendCall) -> AppendOptions:
        media_type_of(head, BATCH_TYPES)
        options = AppendOptions.of(head, call)
        if options.call.producer_id != NO_PRODUCER_ID:
            raise MalformedRequest("raw batches carry their producer inside", header="producer-id")
        return options

    def is_light(self, body: Body) -> bool:
        return not _is_compressed(body) and super().is_light(body)

    def can_coalesce(self, body: Body) -> bool:
        if not self._can_coalesce or len(body) < HEADER_BYTES or body[MAGIC_POSITION] != MAGIC_2:
            return False
        header = parse_header(body)
        return header.size_bytes == len(body) and not header.has_producer_id

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
        # Whoever keeps the append for a repetition keeps its producer, not its body.
        self._data = bytes(self._data[:HEADER_BYTES])

    @property
    def producer(self) -> tuple[int, int]:
        header = parse_header(self._data)
        return header.producer_id, header.base_sequence


async def append_records(exchange: Exchange, partition: LocalPartition, call: AppendCall) -> Answer:
    """Append the records of a JSON or NDJSON body, in one batch."""
    return await _serve(exchange, partition, RecordsAppend, call)


async def append_batches(exchange: Exchange, partition: LocalPartition, call: AppendCall) -> Answer:
    """Append record batches exactly as the client encoded them: all of them, or none."""
    return await _serve(exchange, partition, BatchesAppend, call)


async def _serve(
    exchange: Exchange, partition: LocalPartition, kind: type[Append], call: AppendCall
) -> Answer:
    append = kind(exchange.service, partition, kind.options_of(exchange.head, call))
    key = key_of(exchange.head, exchange.caller.name)
    body = await exchange.body()
    if key is not None:
        return await _append_once(exchange, append, body, key)
    await _run(append, exchange, body)
    return await _answer(append, exchange.service)


async def _append_once(exchange: Exchange, append: Append, body: Body, key: bytes) -> Answer:
    """Append unless a request with this key has; a repetition gets the first one's answer."""
    service = exchange.service

    async def begin() -> Finish:
        # A repetition of the request may wait for this one, even if its client hangs up.
        await _run(append, exchange, body, always_wanted)
        return lambda: _answer(append, service)

    partition = append.partition
    media_type = exchange.head.get(b"content-type")
    question = (partition.path, partition.log.topic_id, append.kind, append.call, media_type)
    asked = await fingerprint(exchange.write, body, question)
    return await service.idempotency.answer_once(key, asked, begin)


async def _run(
    append: Append,
    exchange: Exchange,
    body: Body,
    ensure_wanted: Callable[[], None] | None = None,
) -> None:
    if append.is_light(body):
        with suppress(WouldWait):
            append.run(body, at_once=True)
            return
    await exchange.decode(
        exchange.write,
        lambda: append.run(body, at_once=False, budget=exchange.budget),
        ensure_wanted,
    )


async def _answer(append: Append, service: Service) -> Answer:
    if append.call.acks == "all":
        try:
            await service.on_disk(append.partition.log, append.end_offset)
        except CommitTimedOut as error:
            raise append.explained(error) from None
    return append.receipt().as_answer()


def append_new(
    service: Service,
    partition: LocalPartition,
    call: AppendCall,
    records: Iterable[NewRecord],
    *,
    at_once: bool,
) -> Appended:
    """Build one batch, in the codec the topic asks for, and append it."""
    batch = _build(partition, call, records)
    return _append(service, partition, call, batch, checked=True, at_once=at_once)


def _build(partition: LocalPartition, call: AppendCall, records: Iterable[NewRecord]) -> bytearray:
    codec, level = stored_codec(partition.log.config) or (Codec.NONE, None)
    return build_batch(
        records,
        codec=codec,
        level=level,
        producer_id=call.producer_id,
        producer_epoch=call.producer_epoch,
        base_sequence=call.base_sequence,
    )


def _share(records: list[NewRecord] | RecordColumns) -> tuple[int, int]:
    """Return how many records there are, and the greatest time of them."""
    if isinstance(records, RecordColumns):
        return len(records), max(records.timestamps)
    return len(records), max([timestamp for timestamp, *_ in records])


def _joined(parts: Sequence[list[NewRecord] | RecordColumns]) -> Iterable[NewRecord]:
    columns = [part for part in parts if isinstance(part, RecordColumns)]
    return RecordColumns.of(columns) if len(columns) == len(parts) else chain(*parts)


def _append(
    service: Service,
    partition: LocalPartition,
    call: AppendCall,
    data: Buffer,
    *,
    checked: bool,
    at_once: bool,
    budget: DecodeBudget | None = None,
) -> Appended:
    """Append on this thread; on the loop's at once, and who waits asks for the flush."""
    return service.runtime.committer.append(
        partition.log,
        data,
        acks_all=call.acks == "all",
        wakes=not at_once,
        at_once=at_once,
        checked=checked,
        expected_end_offset=call.expected_end_offset,
        expected_tag=call.expected_tag,
        budget=budget,
    )


def _is_compressed(data: Body) -> bool:
    """Whether any of the batches has a codec. The log refuses bytes that are no whole batches."""
    position, end = 0, len(data)
    with suppress(CorruptBatch):
        while position < end and (size := frame_size(data, position)) is not None:
            flags = position + ATTRIBUTES_POSITION + 1
            if flags < end and data[flags] & CODEC_MASK:
                return True
            position += size
    return False
